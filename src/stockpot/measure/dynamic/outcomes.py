"""What happened to every image of a dynamic evaluation, and the scores that follow from it.

SA is the accuracy on all images as they are; PA the accuracy on the generated images, over those
validated; FMR their ratio (arXiv:2308.10632). Since PA and SA stand on different images, the ratio
with SA taken over the validated images only, `matched_fmr`, is given as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stockpot.measure.measurement import proportion, with_interval
from stockpot.results.schema import Score
from stockpot.results.statistics import bootstrap_mean, bootstrap_of_means

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Outcomes:
    """One entry per image, in the order of the data."""

    labels: NDArray[np.int64]
    correct: Flags
    """The model is right about the image as it is."""
    covered: Flags
    """The oracle accepts the image as it is."""
    validated: Flags
    """The oracle accepts the first candidate."""
    withstood: Flags
    """The model is right about the image that was returned."""
    accepted: NDArray[np.int64]
    """How many candidates were accepted."""
    fooled_at: NDArray[np.int64]
    """The first accepted candidate that the model got wrong; -1 where none."""
    flips: NDArray[np.float64]
    """Share of codes changed per step."""

    def of(self, members: Flags) -> Outcomes:
        """The outcomes of some images."""
        return Outcomes(
            **{name: getattr(self, name)[members] for name in self.__dataclass_fields__}
        )


def headline(found: Outcomes, condition: Mapping[str, str], budget: int, seed: int) -> list[Score]:
    """The scores of all images together."""
    n = len(found.labels)
    kept = found.validated
    scores = [
        proportion("accuracy", found.correct, condition),
        proportion("coverage", found.covered, condition),
        proportion("validation_rate", kept, condition),
    ]
    if found.covered.any():
        flags = kept[found.covered]
        scores.append(proportion("validation_rate_of_covered", flags, condition))
    if not kept.any():
        return scores
    scores.append(proportion("perturbed_accuracy", found.withstood[kept], condition))
    scores += ratios(found, condition, seed)
    full = found.accepted[kept] >= budget
    scores.append(proportion("budget_spent", full, condition))
    steps = (found.accepted[kept] - 1).astype(np.float64)
    scores.append(
        with_interval(
            "steps",
            float(steps.mean()),
            int(kept.sum()),
            bootstrap_mean(steps, seed=seed),
            better=None,
            unit="count",
            condition=condition,
        )
    )
    if np.isfinite(found.flips).all() and n:
        flips = found.flips[kept]
        scores.append(
            with_interval(
                "code_flip_rate",
                float(flips.mean()),
                int(kept.sum()),
                bootstrap_mean(flips, seed=seed),
                better=None,
                condition=condition,
            )
        )
    return scores


def ratios(found: Outcomes, condition: Mapping[str, str], seed: int) -> list[Score]:
    """FMR, and FMR with both accuracies on the same images; images are resampled jointly."""
    kept = found.validated
    table = np.stack(
        [found.withstood & kept, kept, found.correct, found.correct & kept], axis=1
    ).astype(np.float64)
    scores = []
    for metric, value in (("fmr", _fmr), ("matched_fmr", _matched)):
        centre = value(table.mean(axis=0)[None])[0]
        if np.isfinite(centre):
            interval = bootstrap_of_means(table, value, seed=seed)
            n = int(kept.sum())
            scores.append(with_interval(metric, float(centre), n, interval, condition=condition))
    return scores


def by_class(
    found: Outcomes, classes: tuple[str, ...], condition: Mapping[str, str], seed: int
) -> list[Score]:
    """SA, PA, validation rate and FMR of every class, with that class's own SA."""
    scores = []
    for index, name in enumerate(classes):
        own = found.of(found.labels == index)
        if not len(own.labels):
            continue
        where = {**condition, "class": name}
        scores.append(proportion("class_accuracy", own.correct, where))
        scores.append(proportion("class_validation_rate", own.validated, where))
        if own.validated.any():
            flags = own.withstood[own.validated]
            scores.append(proportion("class_perturbed_accuracy", flags, where))
            scores += [
                score.model_copy(update={"metric": f"class_{score.metric}"})
                for score in ratios(own, where, seed)
            ]
    return scores


def curve(found: Outcomes, condition: Mapping[str, str], budget: int) -> list[Score]:
    """The share of validated images that the model has got wrong by each turn of the search."""
    kept = found.validated
    if not kept.any():
        return []
    fooled = found.fooled_at[kept]
    turns = sorted({*(2**k for k in range(12) if 2**k < budget), 0, budget - 1})
    return [
        proportion(
            "fooled", (fooled >= 0) & (fooled <= turn), {**condition, "turn": turn}, better=False
        )
        for turn in turns
    ]


def _fmr(means: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore"):
        return (means[:, 0] / means[:, 1]) / means[:, 2]


def _matched(means: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore"):
        return means[:, 0] / means[:, 3]
