"""How well a score tells images of the model's world from others: AUROC, FPR at 95 % TPR, AUPR.

Scores are large for in-distribution images. As in OpenOOD v1.5 (arXiv:2306.09301) the others are
the positives: `fpr95` is the share of in-distribution images that are turned away when 95 % of the
others are. Older papers have it the other way round, `fpr95_in`: the share of the others that pass
when 95 % of the in-distribution images do. The areas under precision and recall are those of
trapezoids, with one of both kinds of images as the positives.

Intervals draw images of both kinds anew (whole groups where there are any). Where the two do not
overlap at all, no resample does, and the interval of AUROC is Wilson's for as many images as there
are of the fewer kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stockpot.results.resamples import Groups, image_counts
from stockpot.results.statistics import Interval, wilson

METRICS = ("auroc", "fpr95", "fpr95_in", "aupr_in", "aupr_out")
RESAMPLES, FEWER, MANY = 1000, 500, 10_000
"""Resamples of sets with few images, and of those with many, whose intervals are narrow anyway."""
_AT_ONCE = 1_000_000
_TPR = 0.95

Floats = NDArray[np.float64]


class Sample(NamedTuple):
    """Scores of the images of one set, and which of them belong together."""

    scores: Floats
    groups: Groups | None = None


class Found(NamedTuple):
    """Values and intervals by metric."""

    values: Mapping[str, float]
    intervals: Mapping[str, Interval]
    drawn: Floats
    """Resamples x metrics."""


def detection(
    inside: Sample, outside: Sample, *, seed: int, place: int = 0, resamples: int = RESAMPLES
) -> Found:
    """How well the scores of two sets tell them apart.

    Args:
        inside: in-distribution images; their draws are the same for every other set.
        outside: the other images.
        seed: of the draws.
        place: the number of the other set: its draws are its own.
        resamples: how many; equal for all sets of one mean.
    """
    values = rates(inside.scores, outside.scores)
    drawn = _drawn(inside, outside, (seed, seed + 1 + place), resamples)
    method = "bootstrap-95" + _by(inside, outside)
    found = _ends(values, drawn, method)
    if values["auroc"] in (0.0, 1.0):
        few = min(len(inside.scores), len(outside.scores))
        ends = wilson(round(values["auroc"] * few), few)
        found["auroc"] = Interval(ends.low, ends.high, f"smaller-set-{ends.method}")
    return Found(values, found, drawn)


def mean_detection(found: Sequence[Found]) -> Found:
    """The mean over several sets, each counting equally, with images of all of them drawn anew."""
    drawn = np.mean([each.drawn for each in found], axis=0)
    values = {name: float(np.mean([each.values[name] for each in found])) for name in METRICS}
    if len(found) == 1:
        return Found(values, found[0].intervals, drawn)
    return Found(values, _ends(values, drawn, "bootstrap-95:sets-equal"), drawn)


def rates(inside: Floats, outside: Floats) -> dict[str, float]:
    """The five numbers of two sets of scores."""
    ones = np.ones((1, len(inside))), np.ones((1, len(outside)))
    table = _weighted(inside, outside, *ones)[0]
    return dict(zip(METRICS, map(float, table), strict=True))


def _drawn(inside: Sample, outside: Sample, seeds: tuple[int, int], resamples: int) -> Floats:
    counts = [
        np.concatenate(list(image_counts(len(sample.scores), seed=own, resamples=resamples,
                                         groups=sample.groups)))
        for sample, own in ((inside, seeds[0]), (outside, seeds[1]))
    ]  # fmt: skip
    step = max(1, _AT_ONCE // (len(inside.scores) + len(outside.scores)))
    parts = [
        _weighted(
            inside.scores, outside.scores,
            counts[0][start : start + step], counts[1][start : start + step],
        )
        for start in range(0, resamples, step)
    ]  # fmt: skip
    return np.concatenate(parts)


def _weighted(
    inside: Floats, outside: Floats, often_in: NDArray[np.generic], often_out: NDArray[np.generic]
) -> Floats:
    """The numbers of resamples, in which each image counts as often as it was drawn."""
    scores = np.concatenate([inside, outside])
    order = np.argsort(scores, kind="stable")
    ranked = scores[order]
    starts = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]]))
    zeros_in, zeros_out = np.zeros_like(often_in, float), np.zeros_like(often_out, float)
    first = np.concatenate([often_in, zeros_out], axis=1)[:, order]
    second = np.concatenate([zeros_in, often_out], axis=1)[:, order]
    # One column for each distinct score, from the least on.
    ins = np.add.reduceat(first, starts, axis=1)
    outs = np.add.reduceat(second, starts, axis=1)
    below_in, below_out = np.cumsum(ins, axis=1), np.cumsum(outs, axis=1)
    total_in, total_out = below_in[:, -1:], below_out[:, -1:]
    above_in, above_out = total_in - below_in + ins, total_out - below_out + outs
    pairs = (ins * (below_out - outs / 2)).sum(axis=1)
    return np.stack(
        [
            pairs / (total_in * total_out)[:, 0],
            _false_rate(below_out / total_out, below_in / total_in),
            _false_rate((above_in / total_in)[:, ::-1], (above_out / total_out)[:, ::-1]),
            _area(above_in[:, ::-1], above_out[:, ::-1]),
            _area(below_out, below_in),
        ],
        axis=1,
    )


def _false_rate(true_rate: Floats, false_rate: Floats) -> Floats:
    """The false rate at the first threshold that has the true rate."""
    # A sum of shares may fall short of what is meant by a rounding.
    place = np.argmax(true_rate >= _TPR - 1e-12, axis=1)
    found: Floats = false_rate[np.arange(len(place)), place]
    return found


def _area(positives: Floats, negatives: Floats) -> Floats:
    """Under precision over recall, by trapezoids from the point (0, 1) on."""
    drawn = positives + negatives
    # Before anything is drawn precision is 1, as at the first point.
    precision = np.where(drawn > 0, positives / np.maximum(drawn, 1e-12), 1.0)
    recall = positives / positives[:, -1:]
    first = np.ones((len(recall), 1))
    precision = np.concatenate([first, precision], axis=1)
    recall = np.concatenate([0 * first, recall], axis=1)
    found: Floats = (np.diff(recall, axis=1) * (precision[:, 1:] + precision[:, :-1]) / 2).sum(1)
    return found


def _ends(values: Mapping[str, float], drawn: Floats, method: str) -> dict[str, Interval]:
    low, high = np.percentile(drawn, [2.5, 97.5], axis=0)
    # Rates jump from image to image: what was observed belongs to the interval all the same.
    return {
        name: Interval(min(float(a), values[name]), max(float(b), values[name]), method)
        for name, a, b in zip(METRICS, low, high, strict=True)
    }


def _by(*samples: Sample) -> str:
    grouped = [len(np.unique(np.asarray(s.groups))) for s in samples if s.groups is not None]
    return f":{'+'.join(map(str, grouped))}-groups" if grouped else ""
