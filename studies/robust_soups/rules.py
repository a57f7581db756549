"""When a claim counts as held: differences over images and seeds, and a rule on intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stockpot.results.contrast import (
    Contrast,
    Contrasts,
    Verdict,
    every_of,
    some_of,
    verdict,
)

MARGINS = {
    "F1": -0.02, "F4": -0.005, "F4, strong": -0.005, "F5": -0.005, "F5, strong": -0.005,
    "F6, clean": -0.005, "F7": -0.01, "F10": 0.1,
}  # fmt: skip
"""What a difference must exceed; 0 where nothing is said. F8 counts weights, the others shares."""

Side = dict[str, NDArray[Any]]
"""Answers by condition, an array of images each."""


class Part(NamedTuple):
    """One difference: its interval, the interval for all of several together, and each seed's."""

    alone: Contrast
    together: Contrast
    each: tuple[float, ...]

    def said(self, margin: float, together: bool = False) -> Verdict:
        """By the interval; and every seed must be on that side."""
        found = self.together if together else self.alone
        told = verdict(found.low, found.high, margin)
        sides = [(value > margin) == (told == "held") for value in self.each]
        return told if told == "not told apart" or all(sides) else "not told apart"


class Finding(NamedTuple):
    """A claim, what was found, and the verdict."""

    claim: str
    parts: tuple[Part, ...]
    verdict: Verdict


def compared(runs: Sequence[tuple[Side, Side]], of: int = 1) -> Part:
    """The first less the second, over seeds; images and seeds are drawn anew together."""
    sides = {
        name: {str(seed): {k: np.asarray(v, np.float32) for k, v in run[place].items()}
               for seed, run in enumerate(runs)}
        for place, name in enumerate(("first", "second"))
    }  # fmt: skip
    contrasts, data = Contrasts(sides), list(runs[0][0])
    factors = {"first": 1.0, "second": -1.0}
    alone = contrasts.of(factors, data)
    together = contrasts.of(factors, data, 1 - 0.05 / of)
    assert alone is not None
    assert together is not None
    each = [float(np.mean([one[k].mean() - two[k].mean() for k in data])) for one, two in runs]
    return Part(alone, together, tuple(each))


def single(claim: str, part: Part) -> Finding:
    return Finding(claim, (part,), part.said(MARGINS.get(claim, 0.0)))


def several(claim: str, parts: Sequence[Part], *, every: bool) -> Finding:
    margin = MARGINS.get(claim, 0.0)
    together = [part.said(margin, together=True) for part in parts]
    alone = [part.said(margin) for part in parts]
    return Finding(claim, tuple(parts), every_of(together, alone) if every else some_of(together))
