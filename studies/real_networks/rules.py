"""Numbers with what they are when pictures are drawn anew, and the rule of plan.md for claims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stockpot.results.contrast import Contrast, Verdict, verdict
from stockpot.results.tables import percent

NAMES = {
    "mobilenet_v2": "MobileNetV2", "resnet50": "ResNet-50", "lite0": "EfficientNet-Lite0",
    "lite1": "EfficientNet-Lite1", "lite2": "EfficientNet-Lite2",
}  # fmt: skip
LARGER = (("mobilenet_v2", "resnet50"), ("lite0", "lite1"), ("lite1", "lite2"))
Floats = NDArray[np.float64]


class Drawn(NamedTuple):
    """A number, and what it is when pictures are drawn anew."""

    value: float
    draws: Floats

    def __sub__(self, other: Drawn | float) -> Drawn:
        if isinstance(other, Drawn):
            return Drawn(self.value - other.value, self.draws - other.draws)
        return Drawn(self.value - other, self.draws - other)

    def interval(self, confidence: float = 0.95) -> Contrast:
        """The number with its interval."""
        tail = 50 * (1 - confidence)
        low, high = np.percentile(self.draws, [tail, 100 - tail])
        return Contrast(self.value, float(low), float(high))


def each_above(found: Sequence[Drawn], margin: float) -> Verdict:
    """Whether all lie above the margin: each at 95 %; one below, at 95 % for all together."""
    if any(one.interval(1 - 0.05 / len(found)).high < margin for one in found):
        return "did not hold"
    return "held" if all(one.interval().low > margin for one in found) else "not told apart"


def each_within(found: Sequence[Drawn], margin: float) -> Verdict:
    """Whether all lie between minus the margin and the margin, by the same rule."""
    wide = [one.interval(1 - 0.05 / len(found)) for one in found]
    if any(verdict(abs_low(one), np.inf, margin) == "held" for one in wide):
        return "did not hold"
    ends = [one.interval() for one in found]
    inside = all(-margin < one.low and one.high < margin for one in ends)
    return "held" if inside else "not told apart"


def abs_low(found: Contrast) -> float:
    """The smallest size that a number may have by its interval."""
    return max(found.low, -found.high, 0.0)


def plain(found: Contrast) -> str:
    return percent(*found)


def listed(names: Sequence[str], found: Sequence[Drawn], text: Any = str) -> str:
    """Several numbers by name."""
    pairs = zip(names, found, strict=True)
    return "; ".join(f"{name} {text(one.interval())}" for name, one in pairs)
