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
from stockpot.dynamic.task import Task
from stockpot.measure.dynamic.outcomes import Outcomes
from stockpot.measure.measurement import Context
from stockpot.models.classifier import Classifier
from stockpot.score.predictions import predictions
from stockpot.score.scorer import Model, Scorer

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
    before: tuple[str, ...]
    after: tuple[str, ...]
    """What the model says of each image as it is and of the one returned."""
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
    rows: Tensor


def evaluate(
    model: Classifier,
    data: Dataset,
    task: Task,
    scorer: Scorer,
    context: Context,
    *,
    restarts: int = 1,
    fgsm: float = 0.0,
    keep_latents: bool = False,
) -> Evaluation:
    """Search around every image; memory is bounded by the batch, which halves when it is short."""
    halving = Halving(context.batch_size)
    parts: list[_Part] = []
    twin: Model | None = None
    done = 0
    with evaluation_mode(model):
        for batch in data.batches(context.batch_size, model.preprocess.fit):
            pixels = batch.images.to(context.device).float() / 255
            if twin is None:
                # The search looks through a copy with folded norms; verdicts come from the model.
                twin = folded(model, pixels)
                halving.notes += _doubts(task, replace(task, model=twin), pixels, scorer)
            for part in scorer.parts(batch.rows):
                judged = replace(task, accepted=part.accepted)
                quick = replace(judged, model=part.of(twin))
                places = part.places.to(context.device)
                ready = Batch(
                    pixels[places],
                    part.targets.to(context.device),
                    part.labels.to(context.device),
                    batch.rows[part.places],
                )
                seeds = (ready.rows + context.seed * _STRIDE).to(context.device)
                start = 0
                for found in search_in_parts(
                    quick, ready, halving, seeds=seeds, restarts=restarts, fgsm=fgsm
                ):
                    own = slice(start, start + len(found.images))
                    start += len(found.images)
                    seen = Batch(*(values[own] for values in ready))
                    parts.append(_look(judged, found, seen, scorer, keep_latents))
            done += len(batch.rows)
            context.progress("dynamic", done, len(data))
    return _gather(parts, data, scorer, halving)


@torch.no_grad()
def _doubts(task: Task, quick: Task, pixels: Tensor, scorer: Scorer) -> list[str]:
    """Say so where the search, in low precision perhaps, sees another model than the one meant.

    Rounding changes an answer here and there. More than that is a fault of the kernels, and
    would end in a search against nobody.
    """
    with quick.autocast(pixels):
        seen = predictions(scorer.logits(quick.model(pixels).float()))
    meant = predictions(scorer.logits(task.model(pixels).float()))
    differ = float((seen != meant).float().mean())
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
    seen: Batch,
    scorer: Scorer,
    keep_latents: bool,
) -> _Part:
    """The verdicts that count are in full precision, on the image that would be saved."""
    exact = replace(task, rules=replace(task.rules, precision="fp32"))
    levels = (found.images * 255).round().clamp(0, 255)
    before = scorer.logits(task.model(seen.pixels).float())
    after = scorer.logits(task.model(levels / 255).float())
    covered, _ = exact.judge(seen.pixels, seen.labels)
    empty = found.start.new_empty(len(seen.rows), 0)
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
        scorer.right(before, seen.rows)[:, 0].cpu(),
        covered.cpu(),
        scorer.right(after, seen.rows)[:, 0].cpu(),
        predictions(before).cpu(),
        predictions(after).cpu(),
        seen.rows,
    )


def _gather(parts: list[_Part], data: Dataset, scorer: Scorer, halving: Halving) -> Evaluation:
    order = torch.cat([part.rows for part in parts]).argsort()

    def join(name: str) -> Tensor:
        return torch.cat(list(_each(parts, name)))[order]

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
        before=tuple(scorer.answer(each) for each in join("before").tolist()),
        after=tuple(scorer.answer(each) for each in join("after").tolist()),
        start=join("start"),
        final=join("final"),
        notes=tuple(halving.notes),
        queries=int(np.maximum(outcomes.accepted, 1).sum()) + 2 * len(outcomes.labels),
    )


def _each(parts: list[_Part], name: str) -> Iterator[Any]:
    for part in parts:
        yield getattr(part, name) if name in part._fields else getattr(part.found, name)
