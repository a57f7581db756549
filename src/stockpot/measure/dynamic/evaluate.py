"""Running the search over a dataset and writing down what happened to every image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stockpot.attack.victim import evaluation_mode
from stockpot.datasets.dataset import Dataset
from stockpot.dynamic.oracle import Rule
from stockpot.dynamic.search import Batch, Found, search_in_parts
from stockpot.dynamic.task import Task
from stockpot.dynamic.ways.way import Way
from stockpot.measure.dynamic.answers import NO_ANSWERS, SIGNS, Answers, answered
from stockpot.measure.dynamic.outcomes import Outcomes
from stockpot.measure.dynamic.shards import IMAGES, PICTURED, Shards
from stockpot.measure.measurement import Context
from stockpot.measure.parts import Since, seen_again
from stockpot.models.classifier import Classifier
from stockpot.models.forward.folding import folded
from stockpot.models.forward.memory import Halving
from stockpot.score.predictions import predictions, watching
from stockpot.score.scorer import Model, Scorer

# Seeds of one run lie this far from those of the next, so that no two images share theirs.
_STRIDE = 1 << 32
_ROUNDING = 0.05
_PICTURED = 4096
"""Images that are kept for the page at most, evenly over the data; an export keeps all."""
_LOOKED_AT = 16
"""Images by which the search's copy of the model is compared with the model."""
_LATENTS = ("start", "final")
_FLAGS = ("validated", "reconstructed", "perturbed", "moved", "accepted", "fooled_at", "flips")


@dataclass(frozen=True)
class Evaluation:
    """Outcomes, and the images they are about."""

    outcomes: Outcomes
    shards: Shards
    confidence: Tensor
    before: tuple[str, ...]
    after: tuple[str, ...]
    """What the model says of each image as it is and of the one returned."""
    start: Tensor
    final: Tensor
    """Latents, where they were asked for; else empty."""
    notes: tuple[str, ...]
    model_queries: int
    oracle_queries: int
    signs: dict[str, NDArray[Any]]
    """What gives away, image by image, a model that hides; `ways` says whose image was returned."""

    def images(self, rows: Sequence[int]) -> Iterator[Tensor]:
        """What was returned for some rows in ascending order, as uint8; one at a time in memory."""
        return self.shards.images(rows)

    @property
    def pictured(self) -> Tensor:
        """The rows whose images were kept."""
        return self.shards.column(PICTURED)


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
    keep_images: bool = False,
    answers: Answers = NO_ANSWERS,
    place: str = "search",
) -> Evaluation:
    """Search around every image; memory is bounded by the batch, which halves when it is short.

    What is found goes to disk batch by batch. With `context.scratch` a killed search goes on there.

    Args:
        model: the model under test.
        data: the images.
        task: model, generator, oracle and rules.
        scorer: what is right.
        context: how to run.
        restarts: as for `search`.
        fgsm: as for `search`.
        keep_latents: also give the latents before and after.
        keep_images: keep all images, not only enough for the page.
        answers: further searches where a model seems to hide.
        place: which search of this measure it is, where there are several.
    """
    own = context.pieces.part
    mine = own.rows(len(data), context.batch_size) if own else range(len(data))
    shards = Shards(context.scratch / place if context.scratch else None, mine.start)
    apart = 1 if keep_images else max(1, -(-len(data) // _PICTURED))
    halving = Halving(context.batch_size)
    if shards.done > mine.start and shards.done < mine.stop:
        halving.notes.append(f"the search went on after {shards.done} images of an earlier start")
    twin: Model | None = None
    gone = shards.done
    rest = data if len(mine) == len(data) and not gone else data.take(range(gone, mine.stop))
    for told in shards.told():
        seen_again(model, told)
    with evaluation_mode(model), watching(model) as watch:
        since = Since(watch)
        for batch in rest.batches(context.batch_size, model.preprocess.fit):
            pixels = batch.images.to(context.device).float() / 255
            rows = batch.rows + gone
            if twin is None:
                # The search looks through a copy with folded norms; verdicts come from the model.
                twin = folded(model, pixels)
                few = pixels[:_LOOKED_AT]
                halving.notes += _doubts(task, replace(task, model=twin), few, scorer)
                if gone:  # the copy was looked at before, when the first image was searched for
                    since.now()
            parts: list[dict[str, Tensor]] = []
            for part in scorer.parts(rows):
                places = part.places.to(context.device)
                hunt = _Hunt(
                    replace(task, accepted=part.accepted),
                    part.of(twin),
                    scorer,
                    halving,
                    context.seed,
                    {"restarts": restarts, "fgsm": fgsm},
                    keep_latents,
                )
                ready = Batch(
                    pixels[places],
                    part.targets.to(context.device),
                    part.labels.to(context.device),
                    rows[part.places],
                )
                parts.append(answered(hunt, ready, answers, task.rules))
            shards.add(_ordered(parts, apart), halving.notes, len(rows), since.now())
            context.progress("dynamic", shards.done, len(data))
    context.pieces.end()
    return _gather(shards, data, scorer)


@dataclass(frozen=True)
class _Hunt:
    """One search of some images, in parts that fit into memory, and what came of it."""

    task: Task
    quick: Model
    scorer: Scorer
    halving: Halving
    seed: int
    options: dict[str, Any]
    keep_latents: bool

    def __call__(self, batch: Batch, way: Way) -> dict[str, Tensor]:
        quick = replace(self.task, model=self.quick, way=way)
        seeds = (batch.rows + self.seed * _STRIDE).to(batch.pixels.device)
        parts: list[dict[str, Tensor]] = []
        start = 0
        for found in search_in_parts(quick, batch, self.halving, seeds=seeds, **self.options):
            own = slice(start, start + len(found.images))
            start += len(found.images)
            seen = Batch(*(values[own] for values in batch))
            parts.append(_look(self.task, found, seen, self.scorer, self.keep_latents))
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


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
    task: Task, found: Found, seen: Batch, scorer: Scorer, keep_latents: bool
) -> dict[str, Tensor]:
    """The verdicts that count are in full precision, on the image that would be saved."""
    exact = replace(task, rules=replace(task.rules, precision="fp32"))
    levels = (found.images * 255).round().clamp(0, 255)
    before = scorer.logits(task.model(seen.pixels).float())
    after = scorer.logits(task.model(levels / 255).float())
    shares = exact.shares(seen.pixels)
    every = torch.ones_like(found.validated)
    empty = found.start.new_empty(len(seen.rows), 0)
    facts = {name: getattr(found, name) for name in _FLAGS}
    facts |= {name: getattr(found, name) for name in ("zero", "faint", "recognised")}
    facts |= {name: getattr(found, name) if keep_latents else empty for name in _LATENTS}
    facts |= {
        "rows": seen.rows,
        IMAGES: levels.to(torch.uint8),
        "confidence": found.confidence,
        "covered": every if shares is None else task.rules.accept.accepts(shares, seen.labels),
        "known": every if shares is None else Rule("argmax").accepts(shares, seen.labels),
        "correct": scorer.right(before, seen.rows)[:, 0],
        "withstood": scorer.right(after, seen.rows)[:, 0],
        "before": predictions(before),
        "after": predictions(after),
        # Beside the search: the image as it is and the one returned; of the oracle the first.
        "model_queries": found.model_queries + 2,
        "oracle_queries": (found.asked + 1) * (shares is not None),
    }
    return {name: tensor.cpu() for name, tensor in facts.items()}


def _ordered(parts: list[dict[str, Tensor]], apart: int) -> dict[str, Tensor]:
    """The facts of a batch by row, with the images of every so-many-th row."""
    joined = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    order = joined["rows"].argsort()
    joined = {name: tensor[order] for name, tensor in joined.items()}
    kept = joined["rows"] % apart == 0
    return joined | {IMAGES: joined[IMAGES][kept], PICTURED: joined["rows"][kept]}


def _gather(shards: Shards, data: Dataset, scorer: Scorer) -> Evaluation:
    names = [each.name for each in fields(Outcomes) if each.name not in ("labels", "groups")]
    columns = {name: shards.column(name).numpy() for name in names}
    columns["flips"] = columns["flips"].astype("float64")
    groups = None if data.groups is None else np.unique(data.groups, return_inverse=True)[1]
    return Evaluation(
        outcomes=Outcomes(labels=data.labels.numpy(), groups=groups, **columns),
        shards=shards,
        confidence=shards.column("confidence"),
        before=tuple(scorer.answer(each) for each in shards.column("before").tolist()),
        after=tuple(scorer.answer(each) for each in shards.column("after").tolist()),
        start=shards.column("start"),
        final=shards.column("final"),
        notes=tuple(shards.notes()),
        model_queries=int(columns["model_queries"].sum()),
        oracle_queries=int(columns["oracle_queries"].sum()),
        signs={name: shards.column(name).numpy() for name in SIGNS},
    )
