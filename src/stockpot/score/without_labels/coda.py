"""CODA: which of several models is best, with few labels (Kay et al., arXiv:2507.23771).

Each model has a confusion matrix whose rows are Dirichlet distributed; beforehand they follow the
consensus of all models. A label adds to the row of its class. A model is best in a class where its
diagonal entry, Beta distributed, is the largest, and over classes by how frequent they seem. The
next image to label is the one whose label is expected to tell most about which model is best.

For one class, what a label would change depends only on which models said that class. Images share
such patterns, so each is worked out once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
_POINTS = 256
_GRID = np.linspace(1e-6, 1 - 1e-6, _POINTS)
_AT_ONCE = 512
"""Patterns that are worked out together."""


@dataclass
class Coda:
    """What is known of the models so far."""

    probabilities: Floats
    """Models x images x classes."""
    prior: float = 0.1
    """How much the consensus counts beforehand."""
    rate: float = 0.01
    """How much a label counts."""
    multiplier: float = 2.0
    said: Numbers = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64))
    """The class that each model says, -1 for none; the most probable one by default."""
    labelled: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        classes = self.probabilities.shape[2]
        if not self.said.size:
            self.said = self.probabilities.argmax(axis=2)
        consensus = np.eye(classes)[self.probabilities.mean(axis=0).argmax(axis=1)]
        confusion = np.einsum("nc,hnj->hcj", consensus, self.probabilities)
        confusion /= np.maximum(confusion.sum(axis=2, keepdims=True), 1e-6)
        base = np.full((classes, classes), 1 / max(classes - 1, 1))
        np.fill_diagonal(base, 1.0)
        self.counts: Floats = self.multiplier * (base + self.prior * confusion)
        self._look()

    def add(self, image: int, label: int, right: NDArray[np.bool_] | None = None) -> None:
        """Learn the label of an image; the order of labels does not matter.

        Args:
            image: its number.
            label: its class.
            right: who is right about it, where more than one class is; else who says `label`.
        """
        said = self.said[:, image]
        hit = said == label if right is None else right
        # Who says nothing is wrong, whatever it is taken for.
        other = np.where(said < 0, (label + 1) % self.counts.shape[1], said)
        self.counts[np.arange(len(said)), label, np.where(hit, label, other)] += self.rate
        self.labelled.append(image)
        self._look()

    def _look(self) -> None:
        told = np.matmul(self.probabilities, self.counts.transpose(0, 2, 1)).sum(axis=0)
        self.classes_of: Floats = told / np.maximum(told.sum(axis=1, keepdims=True), 1e-12)
        """The probability of each class, image by image."""
        marginal = self.classes_of.sum(axis=0)
        self.frequency: Floats = marginal / marginal.sum()

    def best(self) -> Floats:
        """For each model the probability that it is the best one."""
        found: Floats = self.frequency @ self._rows()
        return found

    def candidates(self) -> Numbers:
        """Images without a label on which the models differ; all of them where there is none."""
        left = np.ones(self.said.shape[1], dtype=bool)
        left[self.labelled] = False
        differ: Numbers = np.flatnonzero(left & (self.said != self.said[0]).any(axis=0))
        return differ if len(differ) else np.flatnonzero(left)

    def gains(self, images: Numbers) -> Floats:
        """The information, in bits, that the label of each image is expected to bring."""
        if not len(images):  # every label is known
            return np.zeros(0)
        before = self._rows()
        mixture = self.frequency @ before
        classes = self.counts.shape[1]
        said = self.said[:, images]
        # A pattern is a class and who said it.
        hits = said[None, :, :] == np.arange(classes)[:, None, None]
        patterns, where = _distinct(hits.transpose(0, 2, 1))
        right, wrong = self._diagonals()
        missed, hit = _curves(right, wrong + 1), _curves(right + 1, wrong)
        after = np.empty(len(patterns))
        for start in range(0, len(patterns), _AT_ONCE):
            part = patterns[start : start + _AT_ONCE]
            of_class, who = part[:, 0].astype(np.int64), part[:, 1:, None].astype(bool)
            either = zip(hit, missed, strict=True)
            rows = _best_of(*(np.where(who, yes[of_class], no[of_class]) for yes, no in either))
            change = self.frequency[of_class, None] * (rows - before[of_class])
            after[start : start + len(part)] = _entropy(mixture + change)
        left = after[where].reshape(classes, len(images))
        found: Floats = _entropy(mixture[None])[0] - (self.classes_of[images].T * left).sum(axis=0)
        return found

    def _diagonals(self) -> tuple[Floats, Floats]:
        """Both parameters of each class's Beta distribution; classes x models."""
        right = np.diagonal(self.counts, axis1=1, axis2=2).T.copy()
        return right, self.counts.sum(axis=2).T - right

    def _rows(self) -> Floats:
        """For each class the probability of each model to be best there."""
        return _best_of(*_curves(*self._diagonals()))


def _distinct(hits: NDArray[np.bool_]) -> tuple[NDArray[np.int16], Numbers]:
    """Patterns (class, then a mark per model) and which of them each class and image has."""
    classes, images, models = hits.shape
    packed = np.packbits(hits, axis=2)
    numbers = np.repeat(np.arange(classes), images)[:, None]
    keys = np.concatenate([numbers // 256, numbers % 256, packed.reshape(classes * images, -1)], 1)
    unique, where = np.unique(keys.astype(np.uint8), axis=0, return_inverse=True)
    who = np.unpackbits(unique[:, 2:], axis=1, count=models)
    of_class = unique[:, 0].astype(np.int16) * 256 + unique[:, 1]
    return np.concatenate([of_class[:, None], who], axis=1), where.ravel()


def _curves(right: Floats, wrong: Floats) -> tuple[Floats, Floats]:
    """Density and distribution of Beta distributions on the grid."""
    from scipy.special import betaln

    log = (
        (right[..., None] - 1) * np.log(_GRID)
        + (wrong[..., None] - 1) * np.log1p(-_GRID)
        - betaln(right, wrong)[..., None]
    )
    density = np.exp(log)
    steps = 0.5 * (density[..., 1:] + density[..., :-1]) * np.diff(_GRID)
    below = np.concatenate([np.zeros((*right.shape, 1)), steps.cumsum(axis=-1)], axis=-1)
    return density, below


def _best_of(density: Floats, below: Floats) -> Floats:
    """The probability of each model that its value is the largest; ... x models."""
    log = np.log(np.maximum(below, 1e-30))
    # Beyond what single precision holds nothing is told apart, as in the authors' program.
    others = np.exp(np.clip(log.sum(axis=-2, keepdims=True) - log, -80, 80))
    share = np.trapezoid(density * others, _GRID, axis=-1)
    found: Floats = share / np.maximum(share.sum(axis=-1, keepdims=True), 1e-30)
    return found


def _entropy(shares: Floats) -> Floats:
    kept = np.maximum(shares, 1e-12)
    found: Floats = -(kept * np.log2(kept)).sum(axis=-1)
    return found
