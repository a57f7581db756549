"""Certified accuracy by randomised smoothing: right, and right for every small change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from stockpot.corrupt.draws import Draws
from stockpot.datasets.dataset import Dataset
from stockpot.measure import measures
from stockpot.measure.dynamic.shards import Shards
from stockpot.measure.measurement import (
    Context,
    Measurement,
    proportion,
    recall_passes,
    told_of,
    with_interval,
)
from stockpot.measure.parts import Since, seen_again
from stockpot.measure.unknown.smoothing import ABSTAIN, certify, largest_radius, predict
from stockpot.models.classifier import Classifier, evaluating
from stockpot.results.schema import Score
from stockpot.results.statistics import bootstrap_mean
from stockpot.score.class_space import ClassSpace
from stockpot.score.predictions import NONE, predictions, watching
from stockpot.score.scorer import Scorer, scorer_for
from stockpot.types import Positive

_SHARD = 64
"""Images whose counts are written to disk together."""
_MOST_DRAWS = 2**24
"""Draws of one image have numbers below this."""
Draw = Annotated[int, Field(ge=1, le=_MOST_DRAWS // 2)]


@measures.register("certified", paper="arXiv:1902.02918", passes=True, splits=True)
def certified(
    model: Classifier,
    data: Dataset,
    context: Context,
    *,
    sigma: Positive = 0.25,
    n0: Draw = 100,
    n: Draw = 100_000,
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.001,
    step: Positive = 0.05,
    class_space: ClassSpace = "all",
) -> Measurement:
    """Randomised smoothing: certified accuracy over l_2 radius, mean radius, abstention.

    Radii are in pixels of [0, 1], as published. Every image costs n0 + n forward passes; a killed
    measurement goes on where it was.

    Args:
        sigma: standard deviation of the noise.
        n0: draws that choose the class.
        n: draws that certify it.
        alpha: in which share of images a certificate may be wrong.
        step: between the radii of the curve.
        class_space: as for `clean`.
    """
    scorer = scorer_for(model.classes, data, class_space)
    part = context.pieces.part
    mine = part.rows(len(data), _SHARD) if part else range(len(data))
    shards = Shards(context.scratch, mine.start)
    for about in (kept := shards.told()):
        seen_again(model, about)
    if kept and shards.done == len(data):
        recall_passes(context, kept)
    with evaluating(model), watching(model) as watch:
        task, since = Task(sigma, n0, n), Since(watch)
        size = _count(model, data, context, scorer, task, shards, mine.stop, since)
    context.pieces.end()
    chosen, counted = (shards.column(name).numpy() for name in ("chosen", "counted"))
    classes, radii = certify(chosen, counted, sigma, alpha)
    answered = predict(counted, alpha)
    silent = counted.shape[1] - 1  # the column of draws that were no answer
    for record, columns in (("correct", classes), ("predicted", answered)):
        said = np.where(columns == silent, NONE, columns)
        context.chose(record, data, scorer, torch.from_numpy(said))
    return Measurement(
        scores=_scores(classes, radii, answered, scorer, data, (sigma, n, alpha, step), context),
        convention=(
            f"certified:cohen:{class_space}; sigma {sigma}, n0 {n0}, n {n}, alpha {alpha}; l2 in "
            f"[0, 1] pixels at {size}; clopper-pearson; noise seeded for each image"
        ),
        images=len(data) * (n0 + n),
        outcomes={
            "correct": _right(classes, scorer),
            "predicted": _right(answered, scorer),
            "abstained": classes == ABSTAIN,
        },
        notes=scorer.notes,
        class_space=scorer.description,
    )


class Task(NamedTuple):
    """How many draws there are of each image."""

    sigma: float
    chosen: int
    counted: int

    @property
    def draws(self) -> int:
        """All of them."""
        return self.chosen + self.counted


def _count(
    model: Classifier,
    data: Dataset,
    context: Context,
    scorer: Scorer,
    task: Task,
    shards: Shards,
    stop: int,
    since: Since,
) -> str:
    """Fill the shards with how often each class is answered, from where they end to a row."""
    columns, size = 0, ""
    whole = not shards.done and stop == len(data)
    todo = data if whole else data.take(range(shards.done, stop))
    if not len(todo):
        return "x".join(map(str, next(data.batches(1, model.preprocess.fit)).images.shape[2:]))
    for batch in todo.batches(_SHARD, model.preprocess.fit):
        size = "x".join(map(str, batch.images.shape[2:]))
        first = shards.done
        pixels = batch.images.to(context.device).float() / 255
        chosen, counted = [], []
        for place, answers in _answers(model, pixels, first, context, scorer, task):
            columns = columns or answers.columns
            split = max(0, min(len(answers.best), task.chosen - answers.start))
            if answers.start == 0:
                chosen.append(torch.zeros(columns + 1, dtype=torch.long))
                counted.append(torch.zeros(columns + 1, dtype=torch.long))
            for table, part in ((chosen, answers.best[:split]), (counted, answers.best[split:])):
                table[place] += torch.bincount(part + 1, minlength=columns + 1)
            if answers.start + len(answers.best) == task.draws:
                context.progress("certified", first + place + 1, len(data))
        # What is no answer is a class of its own, and never the right one.
        found = {
            name: torch.stack(table).roll(-1, dims=1)
            for name, table in (("chosen", chosen), ("counted", counted))
        }
        about = {**since.now(), **told_of(context.passes(model))}
        shards.add(found, (), len(pixels), about)
    return size


class _Part(NamedTuple):
    """Answers to consecutive draws of one image."""

    start: int
    best: Tensor
    columns: int


def _answers(
    model: Classifier,
    pixels: Tensor,
    first: int,
    context: Context,
    scorer: Scorer,
    task: Task,
) -> Iterator[tuple[int, _Part]]:
    """Answers to all draws of all images, image by image; batches run across images.

    A draw's noise depends on the seed, the row and the number of the draw: neither the batch size
    nor the device changes it.
    """
    run = context.passes(model)
    total = len(pixels) * task.draws
    for start in range(0, total, context.batch_size):
        stop = min(start + context.batch_size, total)
        numbers = np.arange(start, stop)
        places, draws = numbers // task.draws, numbers % task.draws
        seeds = (((context.seed + first + places) << 24) + draws).tolist()
        noise = gaussian(Draws(seeds, "smoothing", pixels.device), pixels.shape[1:])
        noisy = pixels[torch.from_numpy(places).to(pixels.device)] + task.sigma * noise
        logits = scorer.logits(run(noisy))
        best = predictions(logits).cpu()
        for place in np.unique(places):
            own = np.flatnonzero(places == place)
            part = _Part(int(draws[own[0]]), best[own[0] : own[-1] + 1], logits.shape[1])
            yield int(place), part


def gaussian(draws: Draws, shape: torch.Size) -> Tensor:
    """Standard normal noise by Box and Muller from 24 bits each: tails reach 5.8 deviations.

    The table of normals that corruptions use ends at 4.3; a certificate is about true Gaussians.
    """
    count = shape.numel()
    half = (count + 1) // 2
    radius = (-2 * (draws.uniform((half,), stream=1) + 2.0**-25).log()).sqrt()
    angle = 2 * torch.pi * draws.uniform((half,), stream=2)
    both = torch.cat([radius * angle.cos(), radius * angle.sin()], dim=1)
    return both[:, :count].view(len(draws), *shape)


def _right(classes: np.ndarray, scorer: Scorer) -> np.ndarray:
    """Whether each column is right; to abstain is not."""
    wanted = torch.where(
        scorer.accepted == NONE, NONE, scorer.mapping.targets(scorer.accepted.clamp_min(0))
    ).numpy()
    found: np.ndarray = ((wanted == classes[:, None]) & (wanted != NONE)).any(axis=1)
    return found


def _scores(
    classes: np.ndarray,
    radii: np.ndarray,
    answered: np.ndarray,
    scorer: Scorer,
    data: Dataset,
    settings: tuple[float, int, float, float],
    context: Context,
) -> list[Score]:
    sigma, n, alpha, step = settings
    groups = None if data.groups is None else np.asarray(data.groups)
    right = _right(classes, scorer)
    about = {"sigma": sigma}
    certain = np.where(right, radii, 0.0)
    interval = bootstrap_mean(certain, seed=context.seed, groups=groups)
    scores = [
        proportion("smoothed_accuracy", _right(answered, scorer), about, groups=groups),
        with_interval("mean_certified_radius", float(certain.mean()), len(certain), interval,
                      unit="radius", condition=about),
        proportion("abstention", classes == ABSTAIN, about, better=False, groups=groups),
        proportion("smoothed_abstention", answered == ABSTAIN, about, better=False, groups=groups),
    ]  # fmt: skip
    most = largest_radius(n, sigma, alpha)
    for place in range(int(most / step) + 1):
        radius = round(place * step, 10)
        about_radius: dict[str, str | float] = {"curve": "radius", "radius": radius, **about}
        certain_here = right & (radii >= radius)
        scores.append(proportion("certified_accuracy", certain_here, about_radius, groups=groups))
    return scores
