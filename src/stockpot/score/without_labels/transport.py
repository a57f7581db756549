"""Confidence optimal transport: the least that predictions must move to have the source's labels.

Between a label and a vector of probabilities half the L1 distance is 1 - the probability of that
label, so moving costs least where the labels, shared out as in the source, get the most probability
(arXiv:2305.15640). That is an assignment of labels to images; its dual has one price per class, and
the optimum is the mean price of the source's labels plus the mean over images of the best
probability less price. Both means can be resampled at fixed prices, and other images judged by
them: any prices give an upper bound, and near the best ones it hardly changes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
_ASSIGNED = 2000
"""Images on which prices are found; an assignment takes their number cubed."""


class Transport(NamedTuple):
    """The optimum as two means."""

    of_source: Floats
    """The price of each source label."""
    of_target: Floats
    """The best probability less price of each target image."""

    @property
    def accuracy(self) -> float:
        """The mean probability of the labels that the images get: one minus the transport cost."""
        return float(self.of_source.mean() + self.of_target.mean())


def transport(labels: Numbers, target: Floats, seed: int = 0) -> Transport:
    """Share the source's labels out over target images so that they fit best.

    Args:
        labels: of the source images, as columns of `target`.
        target: probabilities of the target images; images x classes.
        seed: draws the images on which prices are found, where there are many.
    """
    from scipy.optimize import linear_sum_assignment

    some = target
    if len(target) > _ASSIGNED:
        drawn = np.random.default_rng(seed).permutation(len(target))[:_ASSIGNED]
        some = target[np.sort(drawn)]
    counts = _shared_out(np.bincount(labels, minlength=target.shape[1]), len(some))
    slots = np.repeat(np.arange(len(counts)), counts)
    rows, columns = linear_sum_assignment(some[:, slots], maximize=True)
    prices = _prices(some, slots[columns][np.argsort(rows)])
    # A class that the source does not have may not be given: its price is what no image pays.
    there = np.unique(labels)
    return Transport(prices[labels], (target[:, there] - prices[there]).max(axis=1))


def _shared_out(counts: Numbers, total: int) -> Numbers:
    """Whole numbers in the proportions of `counts`: the largest remainders are rounded up."""
    exact = counts / counts.sum() * total
    whole: Numbers = np.floor(exact).astype(np.int64)
    order = np.argsort(whole - exact, kind="stable")
    whole[order[: total - int(whole.sum())]] += 1
    return whole


def _prices(target: Floats, given: Numbers) -> Floats:
    """Prices at which every image has what it likes best: potentials of the exchanges."""
    classes = target.shape[1]
    # What it costs at least to move an image from one class to another.
    cost = np.full((classes, classes), np.inf)
    for own in np.unique(given):
        mine = target[given == own]
        cost[own] = (mine[:, [own]] - mine).min(axis=0)
    prices = np.zeros(classes)
    for _ in range(classes):
        # The price of `own` exceeds that of another by its exchange cost at most.
        lower = np.minimum(prices, (cost + prices[None, :]).min(axis=1))
        if np.array_equal(lower, prices):
            break
        prices = lower
    return prices
