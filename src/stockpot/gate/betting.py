"""Deciding while images come in: an always-valid test by betting.

Let x_1, x_2, ... be what images say, in random order, each between `low` and `high`, with mean mu:
whether a model is right, or how much righter it is than another. Whoever believes that mu lies
above m may stake a share l of the capital on each image, and then has

    K+(m) = prod_i (1 + l (x_i - m)),

and who believes the contrary K-(m) = prod_i (1 - l (x_i - m)). If mu <= m, each factor of K+ has a
mean of at most one whatever was seen before: K+ is a nonnegative supermartingale that begins at 1,
and by Ville's inequality the chance that it *ever* reaches 1 / alpha is at most alpha. So one may
look after every block of images, stop whenever either capital has reached 1 / alpha, and is wrong
with a chance of at most alpha; no approximation, and no number of looks fixed beforehand
(Waudby-Smith and Ramdas, arXiv:2010.09686).

Which stake is best depends on what is not known: about (mu - m) / variance. The capital is spread
over stakes from small to large; a mean of such capitals is one too, and lacks at most the logarithm
of their number to the best of them. It does not depend on the order of the images.

Images that belong together come as whole groups: x_i - m is summed over a group and divided by the
size of the largest, so that a factor stays positive, and its mean is at most one as before.

Several at once (no class loses more than ...): that one of k fails is said when a capital against
one of them reaches k / alpha (one of k chances of alpha / k each); that all hold needs each capital
for itself to reach 1 / alpha only, for a wrong claim must be wrong about one that fails.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
_STAKES = 20
_SMALLEST, _LARGEST = 0.01, 0.95
"""Of the largest stake that can never lose all: 1 / (high - low)."""


class Bets:
    """What is known after some images, about any mean m between `low` and `high`."""

    def __init__(self, low: float, high: float, largest_group: int = 1) -> None:
        self.low, self.high = low, high
        self._scale = float(largest_group)
        self._stakes = np.geomspace(_SMALLEST, _LARGEST, _STAKES) / (high - low)
        # Images say few different things (right or wrong; better, worse or neither): each is kept
        # once, its sum as the real and its size as the imaginary part, with how often it was said.
        self._said = np.zeros(0, np.complex128)
        self._counts: Values = np.zeros(0)

    def add(self, values: Values, groups: NDArray[np.int64] | None = None) -> None:
        """Images that come in; groups come whole."""
        owners = np.arange(len(values))
        if groups is not None:
            owners = np.unique(groups, return_inverse=True)[1]
        sums = np.bincount(owners, weights=values)
        said, times = np.unique(sums + 1j * np.bincount(owners), return_counts=True)
        every = np.concatenate([self._said, said])
        self._said, places = np.unique(every, return_inverse=True)
        counts = np.concatenate([self._counts, times])
        self._counts = np.bincount(places, weights=counts).astype(np.float64)

    @property
    def n(self) -> int:
        """Images."""
        return int(self._said.imag @ self._counts)

    @property
    def mean(self) -> float:
        """Of the images so far."""
        return float(self._said.real @ self._counts) / self.n if self.n else float("nan")

    def above(self, m: float) -> float:
        """The logarithm of the capital of who bets that the mean lies above m."""
        return self._log_capital(m, 1)

    def below(self, m: float) -> float:
        """The logarithm of the capital of who bets that the mean lies below m."""
        return self._log_capital(m, -1)

    def _log_capital(self, m: float, sign: int) -> float:
        said = (self._said.real - m * self._said.imag) / self._scale
        won = np.log1p(sign * self._stakes[:, None] * said[None]) @ self._counts
        return float(np.logaddexp.reduce(won) - np.log(_STAKES))

    def bounds(self, alpha: float) -> tuple[float, float]:
        """Means that are not ruled out: each side is ever wrong with a chance of alpha at most."""
        wanted = -np.log(alpha)
        return (
            self._edge(lambda m: self.above(m) >= wanted, self.low, self.high),
            self._edge(lambda m: self.below(m) >= wanted, self.high, self.low),
        )

    @staticmethod
    def _edge(ruled_out: Callable[[float], bool], outer: float, inner: float) -> float:
        if not ruled_out(outer):
            return outer
        for _ in range(30):
            middle = (outer + inner) / 2
            outer, inner = (middle, inner) if ruled_out(middle) else (outer, middle)
        return outer
