"""Images made against one model, shown to the others: who is fooled by whose images.

Entry (i, j) of the matrix is the accuracy of model j on the images made against model i, divided by
model j's accuracy on the images as they are: the diagonal is each model's own FMR.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from stockpot.datasets.dataset import Dataset, TensorImages, pixel_fingerprint
from stockpot.errors import BadDataError
from stockpot.measure.dynamic.evaluate import Evaluation
from stockpot.measure.measurement import Context, right_flags
from stockpot.models.classifier import Classifier
from stockpot.results.statistics import Interval, bootstrap_of_means


class Transfer(NamedTuple):
    """The matrix with its intervals; rows made the images, columns look at them."""

    makers: list[str]
    viewers: list[str]
    fmr: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    n: list[int]
    """How many images each maker contributed."""


def as_dataset(data: Dataset, found: Evaluation, maker: str) -> Dataset:
    """The validated images of an evaluation as a dataset of their own."""
    rows = np.flatnonzero(found.outcomes.validated)
    if not len(rows):
        raise BadDataError(f"no image made against {maker} was validated.")
    pixels = torch.stack(list(found.images(rows.tolist())))
    kept = data.take(rows.tolist())
    return replace(
        kept,
        name=f"{data.name} against {maker}",
        images=TensorImages(pixels),
        fingerprint=pixel_fingerprint(pixels, kept.labels, data.classes),
    )


def transfer_matrix(
    models: Mapping[str, Classifier],
    made: Mapping[str, Dataset],
    data: Dataset,
    context: Context,
) -> Transfer:
    """Show every maker's images (from `as_dataset`, or a folder written earlier) to every model."""

    def right(model: Classifier, seen: Dataset) -> NDArray[np.bool_]:
        return right_flags(model, seen, context, "transfer")["all"]

    clean = {name: right(model, data) for name, model in models.items()}
    shape = (len(made), len(models))
    fmr, low, high = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for row, images in enumerate(made.values()):
        for column, (name, model) in enumerate(models.items()):
            seen = right(model, images)
            fmr[row, column] = _ratio(seen.mean(), clean[name].mean())
            interval = _interval(seen, clean[name], context.seed)
            low[row, column], high[row, column] = interval.low, interval.high
    return Transfer(list(made), list(models), fmr, low, high, [len(part) for part in made.values()])


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else float("nan")


def _interval(
    seen: Sequence[bool] | NDArray[np.bool_], clean: NDArray[np.bool_], seed: int
) -> Interval:
    # The clean accuracy stands on many more images: it is held fixed.
    base = float(np.mean(clean))
    table = np.asarray(seen, dtype=np.float64)[:, None]
    return bootstrap_of_means(table, lambda means: means[:, 0] / base, seed=seed)
