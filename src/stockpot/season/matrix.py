"""Soups x images: who is right where. Selection experiments are arithmetic on its columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stockpot.errors import BadParameterError
from stockpot.season.ranking import ranking

Ties = Literal["loss", "first", "random", "centroid"]


@dataclass(frozen=True)
class Matrix:
    """For each soup its weights, and for each image whether it was right and its loss."""

    weights: NDArray[np.float64]
    correct: NDArray[np.bool_]
    loss: NDArray[np.float32]
    groups: NDArray[np.intp] | None = None
    """Where images are copies of others: a number for each original; copies stay together."""

    def accuracy(self, rows: ArrayLike | None = None) -> NDArray[np.float64]:
        """The accuracy of every soup on these images, or on all."""
        seen = self.correct if rows is None else self.correct[:, np.asarray(rows)]
        accuracy: NDArray[np.float64] = seen.mean(axis=1)
        return accuracy

    def best(self, rows: ArrayLike | None = None, *, ties: Ties = "loss", seed: int = 0) -> int:
        """The soup with most images right.

        Args:
            rows: the images to choose on.
            ties: which of equally good soups: lowest `loss`, `first`, `random`, or the one nearest
                the `centroid` of their weights. Ten images and hundreds of soups mostly tie.
            seed: of `random`, and of the draw where nothing else tells soups apart (`ranking`).
        """
        right = (self.correct if rows is None else self.correct[:, np.asarray(rows)]).sum(axis=1)
        tied = np.flatnonzero(right == right.max())
        if ties == "first" or len(tied) == 1:
            return int(tied[0])
        if ties == "random":
            return int(np.random.default_rng(seed).choice(tied))
        points = self.weights[tied]
        if ties == "centroid":
            far = ((points - points.mean(axis=0)) ** 2).sum(axis=1).round(9)
            return int(tied[ranking(points, -far, seed=seed)[0]])
        return int(tied[ranking(points, right[tied], self.mean_loss(rows)[tied], seed=seed)[0]])

    def top(self, count: int, rows: ArrayLike | None = None, *, seed: int = 0) -> NDArray[np.intp]:
        """The best soups in falling order; equally good ones as `ranking` has them."""
        losses = self.mean_loss(rows)
        return ranking(self.weights, self.accuracy(rows), losses, seed=seed)[:count]

    def mean_loss(self, rows: ArrayLike | None = None) -> NDArray[np.float64]:
        """The mean loss of every soup on these images, or on all."""
        seen = self.loss if rows is None else self.loss[:, np.asarray(rows)]
        # In double precision: a few large losses must not swallow the others.
        mean: NDArray[np.float64] = seen.mean(axis=1, dtype=np.float64)
        return mean

    def few_shot(
        self, shots: int, *, held_out: int, draws: int = 50, seed: int = 0, ties: Ties = "loss"
    ) -> NDArray[np.float64]:
        """Accuracy on held-out images of the soup chosen on `shots` others, draw by draw.

        The split is drawn anew each time, so that the largest `shots` varies too. Of copies of one
        original one is drawn, and both numbers count originals.
        """
        n = self.originals
        if not (shots > 0 and held_out > 0 and shots + held_out <= n):
            raise BadParameterError(
                f"expected shots + held_out of 2 to {n} images, got {shots} + {held_out}."
            )
        scores = np.empty(draws)
        for index in range(draws):
            generator = np.random.default_rng([seed, index])
            order = generator.permutation(self.correct.shape[1])
            if self.groups is not None:  # the first copy of each original, in drawn order
                order = order[np.sort(np.unique(self.groups[order], return_index=True)[1])]
            chosen = self.best(order[held_out : held_out + shots], ties=ties, seed=seed + index)
            scores[index] = self.correct[chosen, order[:held_out]].mean()
        return scores

    @property
    def originals(self) -> int:
        """How many images there are, copies not counted."""
        return self.correct.shape[1] if self.groups is None else len(np.unique(self.groups))

    def composition(
        self, levels: Sequence[float], count: int = 5, rows: ArrayLike | None = None
    ) -> NDArray[np.float64]:
        """What the best soups are made of, levels x members.

        At a level above zero, the share of the best soups in which a member has at least that
        weight; below zero, at most.
        """
        weights = self.weights[self.top(count, rows)]
        return np.stack(
            [
                ((weights >= level - 1e-9) if level > 0 else (weights <= level + 1e-9)).mean(axis=0)
                for level in levels
            ]
        )

    def save(self, path: Path) -> None:
        """Write a compressed npz; booleans are packed."""
        packed = np.packbits(self.correct, axis=1)
        n = self.correct.shape[1]
        np.savez_compressed(
            path,
            weights=self.weights,
            correct=packed,
            loss=self.loss,
            n=n,
            groups=np.empty(0, np.intp) if self.groups is None else self.groups,
        )

    @classmethod
    def read(cls, path: Path) -> Matrix:
        """The inverse of `save`."""
        with np.load(path, allow_pickle=False) as stored:
            correct = np.unpackbits(stored["correct"], axis=1, count=int(stored["n"]))
            groups = stored.get("groups")  # older files have none
            known = groups if groups is not None and len(groups) else None
            return cls(stored["weights"], correct.astype(bool), stored["loss"], known)


def single_soup(
    matrices: Sequence[Matrix], rows: Sequence[ArrayLike] | None = None, *, seed: int = 0
) -> int:
    """The soup that is best on the mean over several datasets, each counted once."""
    chosen = [rows[index] if rows else None for index in range(len(matrices))]
    found = zip(matrices, chosen, strict=True)
    scores, losses = zip(*((m.accuracy(part), m.mean_loss(part)) for m, part in found), strict=True)
    # Rounded: equal shares of equal images must not differ by the order of a sum.
    means = np.mean(scores, axis=0).round(12)
    return int(ranking(matrices[0].weights, means, np.mean(losses, axis=0), seed=seed)[0])
