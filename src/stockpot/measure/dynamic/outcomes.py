"""What happened to every image of a dynamic evaluation, and the scores that follow from it.

SA is the accuracy on all images as they are; PA the accuracy on the generated images, over those
validated; FMR their ratio (arXiv:2308.10632). Since PA and SA stand on different images, the ratio
with SA taken over the validated images only, `matched_fmr`, is given as well, and since some
validated images were returned as plain reconstructions, so is PA over those that moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stockpot.dynamic.task import Rules
from stockpot.measure.measurement import proportion, with_interval
from stockpot.results.resamples import Groups
from stockpot.results.schema import Score
from stockpot.results.statistics import bootstrap_mean, bootstrap_of_means

Flags = NDArray[np.bool_]
Condition = Mapping[str, str]


@dataclass(frozen=True)
class Outcomes:
    """One entry per image, in the order of the data."""

    labels: NDArray[np.int64]
    correct: Flags
    """The model is right about the image as it is."""
    covered: Flags
    """The oracle accepts the image as it is."""
    known: Flags
    """The oracle's first choice for the image as it is is right."""
    validated: Flags
    """The oracle accepts the first candidate, whichever of the next two that is."""
    reconstructed: Flags
    """It accepts the plain reconstruction."""
    perturbed: Flags
    """It accepts the first perturbation; never where the search ended before."""
    moved: Flags
    """The returned image is a perturbation."""
    withstood: Flags
    """The model is right about the image that was returned."""
    accepted: NDArray[np.int64]
    """How many candidates were accepted."""
    fooled_at: NDArray[np.int64]
    """The first accepted candidate that the model got wrong; -1 where none."""
    flips: NDArray[np.float64]
    """Share of codes changed per step."""
    model_queries: NDArray[np.int64]
    oracle_queries: NDArray[np.int64]
    """How often model and oracle were asked about the image and what was made of it."""
    groups: NDArray[np.int64] | None = None
    """Which images belong together; none where each stands alone."""

    def of(self, members: Flags) -> Outcomes:
        """The outcomes of some images."""
        columns: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        kept = {name: column[members] for name, column in columns.items() if column is not None}
        return Outcomes(**kept)

    def share(
        self, metric: str, flags: Flags, condition: Condition, among: Flags | None = None
    ) -> Score:
        """The share of flags among all images or some; those of one group count together."""
        groups = self.groups
        if among is not None:
            flags, groups = flags[among], None if groups is None else groups[among]
        return proportion(metric, flags, condition, groups=groups)


def headline(found: Outcomes, condition: Condition, rules: Rules, seed: int) -> list[Score]:
    """The scores of all images together."""
    kept = found.validated
    scores = [
        found.share("accuracy", found.correct, condition),
        found.share("coverage", found.covered, condition),
        found.share("oracle_accuracy", found.known, condition),
        found.share("validation_rate", kept, condition),
        found.share("reconstruction_rate", found.reconstructed, condition),
    ]
    if rules.budget > rules.unmoved:
        scores.append(found.share("perturbation_rate", found.perturbed, condition))
    if found.covered.any():
        scores.append(found.share("validation_rate_of_covered", kept, condition, found.covered))
    scores += [
        _mean(name, getattr(found, name), condition, seed, groups=found.groups, unit="count")
        for name in ("model_queries", "oracle_queries")
    ]
    if not kept.any():
        return scores
    stood = found.withstood
    scores.append(found.share("perturbed_accuracy", stood, condition, kept))
    if found.moved.any():
        scores.append(found.share("perturbed_accuracy_of_moved", stood, condition, found.moved))
    scores += ratios(found, condition, seed)
    scores.append(found.share("budget_spent", found.accepted >= rules.budget, condition, kept))
    own = found.of(kept)
    steps = own.accepted - rules.unmoved
    scores.append(_mean("steps", steps, condition, seed, groups=own.groups, unit="count"))
    if np.isfinite(found.flips).all():
        scores.append(_mean("code_flip_rate", own.flips, condition, seed, groups=own.groups))
    return scores


def _mean(
    metric: str,
    values: NDArray[np.int64] | NDArray[np.float64],
    condition: Condition,
    seed: int,
    *,
    groups: Groups | None,
    unit: str = "fraction",
) -> Score:
    interval = bootstrap_mean(values, seed=seed, groups=groups)
    return with_interval(
        metric,
        float(values.mean()),
        len(values),
        interval,
        better=None,
        unit=unit,
        condition=condition,
    )


def ratios(found: Outcomes, condition: Condition, seed: int) -> list[Score]:
    """FMR, and FMR with both accuracies on the same images."""
    stood, kept, right = found.withstood, found.validated, found.correct
    return ratios_of(stood, kept, right, condition, seed, found.groups)


def ratios_of(
    withstood: Flags,
    kept: Flags,
    correct: Flags,
    condition: Condition,
    seed: int,
    groups: Groups | None = None,
) -> list[Score]:
    """The same from what is known of every image; images (or groups) are resampled jointly."""
    table = np.stack([withstood & kept, kept, correct, correct & kept], axis=1).astype(np.float64)
    scores = []
    for metric, value in (("fmr", _fmr), ("matched_fmr", _matched)):
        centre = value(table.mean(axis=0)[None])[0]
        if np.isfinite(centre):
            interval = bootstrap_of_means(table, value, seed=seed, groups=groups)
            n = int(kept.sum())
            scores.append(with_interval(metric, float(centre), n, interval, condition=condition))
    return scores


def by_class(
    found: Outcomes, classes: tuple[str, ...], condition: Condition, seed: int
) -> list[Score]:
    """SA, PA, validation rate and FMR of every class, with that class's own SA."""
    scores = []
    for index, name in enumerate(classes):
        own = found.of(found.labels == index)
        if not len(own.labels):
            continue
        where = {**condition, "class": name}
        scores.append(own.share("class_accuracy", own.correct, where))
        scores.append(own.share("class_validation_rate", own.validated, where))
        if own.validated.any():
            kept = own.validated
            scores.append(own.share("class_perturbed_accuracy", own.withstood, where, kept))
            scores += [
                score.model_copy(update={"metric": f"class_{score.metric}"})
                for score in ratios(own, where, seed)
            ]
    return scores


def curve(found: Outcomes, condition: Condition, budget: int) -> list[Score]:
    """The share of validated images that the model has got wrong by each turn of the search."""
    kept = found.validated
    if not kept.any():
        return []
    own = found.of(kept)
    fooled = own.fooled_at
    turns = sorted({*(2**k for k in range(12) if 2**k < budget), 0, budget - 1})
    return [
        proportion(
            "fooled",
            (fooled >= 0) & (fooled <= turn),
            {**condition, "turn": turn},
            better=False,
            groups=own.groups,
        )
        for turn in turns
    ]


def _fmr(means: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore"):
        return (means[:, 0] / means[:, 1]) / means[:, 2]


def _matched(means: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore"):
        return means[:, 0] / means[:, 3]
