"""The search for images that a model fails on while an oracle still sees their class.

`search` works on one batch; `search_in_parts` on one that may be too large for the memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.attack.draws import normal
from stockpot.dynamic.climb import Climb
from stockpot.dynamic.grid import on_its_grid
from stockpot.dynamic.task import Task
from stockpot.errors import BadParameterError
from stockpot.models.forward.memory import Halving
from stockpot.score.scorer import Model
from stockpot.stages import stage
from stockpot.types import ImageSize

_PLACE = 0x464D52  # tells the search's draws from those of other users of a seed
_REACH = 5.0  # steps; how far from the image a further start lies


@dataclass(frozen=True)
class Found:
    """The outcome for every image of a batch."""

    images: Tensor
    """The accepted image, or the original where none was."""
    validated: Tensor
    """Whether the oracle accepted the first candidate."""
    reconstructed: Tensor
    """Whether it accepts the plain reconstruction."""
    perturbed: Tensor
    """Whether it accepts the first perturbation; never where the climb ended before."""
    accepted: Tensor
    """How many candidates were accepted."""
    moved: Tensor
    """Whether the returned image is a perturbation and no plain reconstruction."""
    asked: Tensor
    """How often the oracle was asked, restarts included."""
    model_queries: Tensor
    """How often the model answered, restarts included."""
    fooled_at: Tensor
    """The first candidate that the model got wrong, counted from 0; -1 where none."""
    loss: Tensor
    confidence: Tensor
    """The oracle's share for the label, of the returned image."""
    flips: Tensor
    """The mean share of cells whose code changed per accepted step; not a number without codes."""
    zero: Tensor
    faint: Tensor
    """Whether a step of the climb found no slope, or a faint one, where the model is right."""
    recognised: Tensor
    """Whether the model is right about the plain reconstruction."""
    start: Tensor
    final: Tensor
    """Latents before and after."""


@stage("attack")
def search(
    task: Task,
    pixels: Tensor,
    targets: Tensor,
    labels: Tensor,
    *,
    seeds: Tensor,
    restarts: int = 1,
    fgsm: float = 0.0,
) -> Found:
    """Search around every image of a batch.

    Args:
        task: model, generator, oracle and rules.
        pixels: N x 3 x H x W in [0, 1].
        targets: the model's output that stands for each image's class.
        labels: the class of each image in the oracle's numbering.
        seeds: one per image.
        restarts: climbs per image, the further ones from random latents nearby; of those the
            image of the highest loss is kept.
        fgsm: begin at a one-step attack of this l_inf radius on the image instead of at the image.
    """
    if restarts < 1 or fgsm < 0 or task.rules.budget < 1 or task.rules.backtrack < 0:
        raise BadParameterError(
            "expected budget >= 1, restarts >= 1, backtrack >= 0 and fgsm >= 0, got "
            f"{task.rules.budget}, {restarts}, {task.rules.backtrack} and {fgsm}."
        )
    size = ImageSize(*pixels.shape[-2:])
    task = replace(task, generator=on_its_grid(task.generator, size))
    begin = _fgsm(task.model, pixels, targets, fgsm) if fgsm else pixels
    encoded = task.encode(begin, seeds)
    climb = Climb(encoded, pixels.shape)
    climb.run(task, targets, labels, seeds)
    validated = climb.accepted > 0
    moved = climb.accepted > task.rules.unmoved
    if fgsm:
        climb.model_queries = climb.model_queries + 1
    for turn in range(1, restarts):
        rows = validated.nonzero()[:, 0]
        if not len(rows):
            break
        noise = normal(seeds[rows], encoded.latents.shape[1:], _PLACE, turn)
        nearby = encoded.latents[rows] + _REACH * task.rules.step * noise
        again = Climb(
            encoded._replace(latents=task.generator.clamp(nearby), context=encoded.context[rows]),
            pixels[rows].shape,
        )
        again.run(task, targets[rows], labels[rows], seeds[rows])
        # A further start lies beside the reconstruction: what comes of it has moved.
        moved[_take_better(climb, again, rows)] = True
    shown = torch.where(validated[:, None, None, None], climb.images, pixels)
    return Found(
        images=shown,
        validated=validated,
        reconstructed=climb.reconstructed,
        perturbed=climb.perturbed,
        accepted=climb.accepted,
        moved=moved,
        asked=climb.asked,
        model_queries=climb.model_queries,
        fooled_at=climb.fooled_at,
        loss=climb.loss,
        confidence=climb.confidence,
        flips=climb.flips / (climb.accepted - task.rules.unmoved).clamp_min(1),
        zero=climb.zero,
        faint=climb.faint,
        recognised=climb.recognised,
        start=encoded.latents,
        final=climb.final,
    )


def _take_better(climb: Climb, again: Climb, rows: Tensor) -> Tensor:
    """Where the further climb ended at a higher loss, its image is the one returned; which rows."""
    climb.asked[rows] += again.asked
    climb.model_queries[rows] += again.model_queries
    fooled, before = again.fooled_at, climb.fooled_at[rows]
    sooner = (fooled >= 0) & ((before < 0) | (fooled < before))
    climb.fooled_at[rows[sooner]] = fooled[sooner]
    better = (again.accepted > 0) & (again.loss > climb.loss[rows])
    taken = rows[better]
    for name in ("images", "loss", "confidence", "final", "accepted", "flips"):
        getattr(climb, name)[taken] = getattr(again, name)[better]
    return taken


def _fgsm(model: Model, pixels: Tensor, targets: Tensor, eps: float) -> Tensor:
    with torch.enable_grad():
        moving = pixels.clone().requires_grad_(True)
        loss = F.cross_entropy(model(moving).float(), targets, reduction="sum")
        if not loss.requires_grad:
            return pixels
        (gradient,) = torch.autograd.grad(loss, moving, allow_unused=True)
    return pixels if gradient is None else (pixels + eps * gradient.sign()).clamp(0, 1)


class Batch(NamedTuple):
    """Some rows of a dataset, ready for `search`."""

    pixels: Tensor
    targets: Tensor
    labels: Tensor
    rows: Tensor


def search_in_parts(
    task: Task,
    batch: Batch,
    halving: Halving,
    *,
    seeds: Tensor,
    restarts: int = 1,
    fgsm: float = 0.0,
) -> list[Found]:
    """Search a batch in parts that fit into memory."""
    done: list[Found] = []
    start = 0
    while start < len(batch.rows):
        part = slice(start, start + halving.size)
        try:
            found = search(
                task,
                batch.pixels[part],
                batch.targets[part],
                batch.labels[part],
                seeds=seeds[part],
                restarts=restarts,
                fgsm=fgsm,
            )
        except torch.OutOfMemoryError as problem:
            halving.halve(problem)
            continue
        done.append(found)
        start += len(found.images)
    return done
