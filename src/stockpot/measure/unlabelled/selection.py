"""Which model is best, as labels come: what to ask next, and what the answers say."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stockpot.score.without_labels.active_testing import chances, expected_losses, lure_weights
from stockpot.score.without_labels.coda import Coda

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Method = Literal["coda", "active_testing", "random"]
_RESAMPLES = 1000


class Pick(NamedTuple):
    """An image to label next."""

    image: int
    chance: float
    """With which it was drawn; 1 where nothing was."""


class Selection(ABC):
    """One way to ask for labels and to judge by them."""

    @abstractmethod
    def best(self) -> Floats:
        """For each model the probability that it is the best one."""

    @abstractmethod
    def next(self, count: int) -> list[Pick]:
        """The images to label next; at most as many as there are left."""

    @abstractmethod
    def add(self, pick: Pick, label: int, right: Flags | None = None) -> None:
        """Learn a label, and who is right where more than one class is."""


def selection(
    method: Method, probabilities: Floats, said: Numbers, seed: int = 0, rate: float = 1.0
) -> Selection:
    """A way to choose among models.

    Args:
        method: `coda`; `active_testing`: draw images that may cost most, weighed by LURE; `random`.
        probabilities: models x images x classes.
        said: the class that each model says, -1 for none; models x images.
        seed: of draws, and of the order of equals.
        rate: how much a label counts beside the consensus, for `coda`.
    """
    if method == "coda":
        return _Consensus(probabilities, said, seed, rate)
    weights = expected_losses(probabilities) if method == "active_testing" else None
    return _Drawn(said, weights, seed)


class _Consensus(Selection):
    def __init__(self, probabilities: Floats, said: Numbers, seed: int, rate: float) -> None:
        self.state = Coda(probabilities, said=said, rate=rate)
        self.lot = np.random.default_rng(seed).permutation(said.shape[1])

    def best(self) -> Floats:
        return self.state.best()

    def next(self, count: int) -> list[Pick]:
        images = self.state.candidates()
        # Rounded, so that equals are equal on every machine.
        gains = self.state.gains(images).round(12)
        order = np.lexsort((self.lot[images], -gains))[:count]
        return [Pick(int(image), 1.0) for image in images[order]]

    def add(self, pick: Pick, label: int, right: Flags | None = None) -> None:
        self.state.add(pick.image, label, right)


class _Drawn(Selection):
    """Images drawn with known chances, and weighed so that nothing is biased by them."""

    def __init__(self, said: Numbers, expected: Floats | None, seed: int) -> None:
        self.said, self.seed = said, seed
        self.expected = np.ones(said.shape[1]) if expected is None else expected
        self.picks: list[Pick] = []
        self.right: list[Flags] = []

    def best(self) -> Floats:
        models, images = self.said.shape
        right = np.array(self.right, dtype=bool).reshape(-1, models)
        losses = 1 - right.T.astype(np.float64)
        drawn_with = np.array([pick.chance for pick in self.picks])
        weighed = losses * lure_weights(drawn_with, images)
        # As if, beforehand, each model alone had been right about one image: the first labels
        # decide nothing.
        weighed = np.concatenate([weighed, 1 - np.eye(models)], axis=1)
        count = weighed.shape[1]
        drawn = np.random.default_rng(self.seed).integers(0, count, (_RESAMPLES, count))
        risks = weighed[:, drawn].mean(axis=2).round(12)
        first = risks == risks.min(axis=0)
        # Models that are equally good share a resample; one more is shared by all, for finitely
        # many can prove nothing.
        won = (first / first.sum(axis=0)).sum(axis=1)
        found: Floats = (won + 1 / models) / (_RESAMPLES + 1)
        return found

    def next(self, count: int) -> list[Pick]:
        taken = [pick.image for pick in self.picks]
        found: list[Pick] = []
        while len(found) < count and len(taken) < len(self.expected):
            left = chances(self.expected, np.array(taken, dtype=np.int64))
            # By the place in the order alone: the same draws in one go and after a pause.
            generator = np.random.default_rng([self.seed, len(taken)])
            image = int(generator.choice(len(left), p=left))
            found.append(Pick(image, float(left[image])))
            taken.append(image)
        return found

    def add(self, pick: Pick, label: int, right: Flags | None = None) -> None:
        self.picks.append(pick)
        self.right.append(self.said[:, pick.image] == label if right is None else right)
