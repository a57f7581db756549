"""Running the search over a dataset and writing down what happened to every image."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from stockpot.attack.folding import folded
from stockpot.attack.victim import evaluation_mode
from stockpot.datasets.dataset import Dataset
from stockpot.dynamic.search import Batch, Found, Halving, search_in_parts
from stockpot.dynamic.task import Model, Task
from stockpot.measure.dynamic.outcomes import Outcomes
from stockpot.measure.measurement import Context
from stockpot.models.class_space import ClassMap
from stockpot.models.classifier import Classifier

# Seeds of one run lie this far from those of the next, so that no two images share theirs.
_STRIDE = 1 << 32
_ROUNDING = 0.05


@dataclass(frozen=True)
class Evaluation:
    """Outcomes, and the images they are about."""

    outcomes: Outcomes
    images: Tensor
    """What was returned for every image, as uint8."""
    confidence: Tensor
    before: Tensor
    after: Tensor
    """What the model says of the image as it is and of the one returned (its own outputs)."""
    start: Tensor
    final: Tensor
    """Latents, where they were asked for; else empty."""
    notes: tuple[str, ...]
    queries: int


class _Part(NamedTuple):
    found: Found
    correct: Tensor
    covered: Tensor
    withstood: Tensor
    before: Tensor
    after: Tensor


def evaluate(
    model: Classifier,
    data: Dataset,
    task: Task,
    mapping: ClassMap,
    context: Context,
    *,
    restarts: int = 1,
    fgsm: float = 0.0,
    keep_latents: bool = False,
) -> Evaluation:
    """Search around every image; memory is bounded by the batch, which halves when it is short."""
    halving = Halving(context.batch_size)
    parts: list[_Part] = []
    quick: Task | None = None
    done = 0
    with evaluation_mode(model):
        for batch in data.batches(context.batch_size, model.preprocess.fit):
            pixels = batch.images.to(context.device).float() / 255
            if quick is None:
                # The search looks through a copy with folded norms; verdicts come from the model.
                twin = folded(model, pixels)
                quick = replace(task, model=in_class_space(twin, mapping, context.device))
                halving.notes += _doubts(task, quick, pixels)
            labels = batch.labels.to(context.device)
            outputs = mapping.outputs.to(context.device)
            targets = labels if mapping.space == "subset" else outputs[labels]
            seeds = (batch.rows + context.seed * _STRIDE).to(context.device)
            ready = Batch(pixels, targets, labels, batch.rows)
            start = 0
            for found in search_in_parts(
                quick, ready, halving, seeds=seeds, restarts=restarts, fgsm=fgsm
            ):
                rows = slice(start, start + len(found.images))
                start += len(found.images)
                parts.append(
                    _look(task, found, pixels[rows], targets[rows], labels[rows], keep_latents)
                )
            done += len(batch.rows)
            context.progress("dynamic", done, len(data))
    return _gather(parts, data, halving)


def in_class_space(model: Model, mapping: ClassMap, device: torch.device) -> Model:
    """The model's outputs that a search looks at: all, or those of the data's classes."""
    if mapping.space == "all":
        return model
    outputs = mapping.outputs.to(device)
    return lambda pixels: model(pixels)[:, outputs]


@torch.no_grad()
def _doubts(task: Task, quick: Task, pixels: Tensor) -> list[str]:
    """Say so where the search, in low precision perhaps, sees another model than the one meant.

    Rounding changes an answer here and there. More than that is a fault of the kernels, and
    would end in a search against nobody.
    """
    with quick.autocast(pixels):
        seen = quick.model(pixels).argmax(dim=1)
    differ = float((seen != task.model(pixels).argmax(dim=1)).float().mean())
    if differ <= _ROUNDING:
        return []
    return [
        f"in {task.rules.precision} the model gives another answer on {100 * differ:.0f} % of the "
        "first images: the search is not to be trusted; use precision=fp32"
    ]


@torch.no_grad()
def _look(
    task: Task,
    found: Found,
    pixels: Tensor,
    targets: Tensor,
    labels: Tensor,
    keep_latents: bool,
) -> _Part:
    """The verdicts that count are in full precision, on the image that would be saved."""
    exact = replace(task, rules=replace(task.rules, precision="fp32"))
    levels = (found.images * 255).round().clamp(0, 255)
    before = task.model(pixels).argmax(dim=1)
    after = task.model(levels / 255).argmax(dim=1)
    covered, _ = exact.judge(pixels, labels)
    empty = found.start.new_empty(len(pixels), 0)
    found = Found(
        images=levels.to(torch.uint8).cpu(),
        validated=found.validated.cpu(),
        accepted=found.accepted.cpu(),
        fooled_at=found.fooled_at.cpu(),
        loss=found.loss.cpu(),
        confidence=found.confidence.cpu(),
        flips=found.flips.cpu(),
        start=(found.start if keep_latents else empty).cpu(),
        final=(found.final if keep_latents else empty).cpu(),
    )
    return _Part(
        found,
        (before == targets).cpu(),
        covered.cpu(),
        (after == targets).cpu(),
        before.cpu(),
        after.cpu(),
    )


def _gather(parts: list[_Part], data: Dataset, halving: Halving) -> Evaluation:
    def join(name: str) -> Tensor:
        return torch.cat(list(_each(parts, name)))

    outcomes = Outcomes(
        labels=data.labels.numpy(),
        correct=join("correct").numpy(),
        covered=join("covered").numpy(),
        validated=join("validated").numpy(),
        withstood=join("withstood").numpy(),
        accepted=join("accepted").numpy(),
        fooled_at=join("fooled_at").numpy(),
        flips=join("flips").double().numpy(),
    )
    return Evaluation(
        outcomes=outcomes,
        images=join("images"),
        confidence=join("confidence"),
        before=join("before"),
        after=join("after"),
        start=join("start"),
        final=join("final"),
        notes=tuple(halving.notes),
        queries=int(np.maximum(outcomes.accepted, 1).sum()) + 2 * len(outcomes.labels),
    )


def _each(parts: list[_Part], name: str) -> Iterator[Any]:
    for part in parts:
        yield getattr(part, name) if name in part._fields else getattr(part.found, name)
