"""What several models answer to the same images, in one class space, and how they agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stockpot.datasets.dataset import Dataset
from stockpot.measure.cells import ModelSpec, model_for
from stockpot.measure.measurement import Context
from stockpot.measure.unknown.answers import Answers, answers_of
from stockpot.measure.unlabelled.estimates import RESAMPLES, Estimate
from stockpot.results.resamples import resampled_means
from stockpot.results.statistics import Interval
from stockpot.score.without_labels.agreement_line import (
    AgreementLine,
    agreement_line,
    agreements,
)

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class PoolAnswers:
    """Answers of all models to one dataset; columns are the data's classes."""

    names: tuple[str, ...]
    answers: tuple[Answers, ...]

    @property
    def probabilities(self) -> Floats:
        """Models x images x classes; evenly spread where a model gives no answer."""
        odds = np.stack([each.probabilities() for each in self.answers])
        return np.nan_to_num(odds, nan=1 / odds.shape[2])

    @property
    def said(self) -> Numbers:
        """The class that each model says, -1 for none; models x images."""
        return np.stack(
            [
                np.where(each.answered, np.nan_to_num(each.logits).argmax(axis=1), -1)
                for each in self.answers
            ]
        )

    @property
    def right(self) -> NDArray[np.bool_]:
        """Models x images, by the data's labels."""
        return np.stack([each.correct for each in self.answers])


def pool_answers(specs: Sequence[ModelSpec], data: Dataset, context: Context) -> PoolAnswers:
    """One pass of each model over the images, one model in memory at a time."""
    found = tuple(
        answers_of(model_for(spec, data, context.device), data, context, spec.name, "subset")
        for spec in specs
    )
    return PoolAnswers(tuple(spec.name for spec in specs), found)


def line_estimates(
    source: PoolAnswers, target: PoolAnswers, seed: int = 0
) -> tuple[dict[str, list[Estimate]], AgreementLine]:
    """ALine-S and ALine-D of every model with intervals over images, and the line itself."""
    right = source.right.T.astype(np.float64)
    inside = np.column_stack([right, agreements(source.said)]).astype(np.float64)
    outside = agreements(target.said).astype(np.float64)
    models = len(source.names)
    groups = source.answers[0].groups, target.answers[0].groups
    drawn = [
        resampled_means(table, seed=seed + place, resamples=RESAMPLES, groups=groups[place])
        for place, table in enumerate((inside, outside))
    ]
    whole = agreement_line(
        inside[:, :models].mean(axis=0), inside[:, models:].mean(axis=0), outside.mean(axis=0)
    )
    lines = [
        agreement_line(here[:models], here[models:], there)
        for here, there in zip(*drawn, strict=True)
    ]
    named = {
        "aline_s": (whole.simple, np.stack([line.simple for line in lines])),
        "aline_d": (whole.paired, np.stack([line.paired for line in lines])),
    }
    return {name: _with_ends(*pair) for name, pair in named.items()}, whole


def _with_ends(values: Floats, resampled: Floats) -> list[Estimate]:
    ends = np.percentile(resampled, [2.5, 97.5], axis=0).T
    how = "bootstrap-95:source-and-target"
    return [
        Estimate(float(value), Interval(float(low), float(high), how))
        for value, (low, high) in zip(values, ends, strict=True)
    ]
