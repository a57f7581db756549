"""The claims M1 to M7 of masked counterfactual fine-tuning as comparisons with intervals.

Each is a contrast: models with a factor each, whose sum should be above zero. All models of a
contrast meet the same images and seeds in every resample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stockpot.results.groups import Answers, Draws, resampled

MASKS, FILLS = ("random", "context", "object"), ("none", "single", "multi")
SHARES = (25, 50, 75)
Contrast = Mapping[str, float]


class Difference(NamedTuple):
    """A contrast in points, with a 95 % interval over images and seeds."""

    value: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """What the interval allows to say about `value > 0`."""
        if self.low > 0:
            return "held"
        return "did not hold" if self.high < 0 else "not told apart"

    def __str__(self) -> str:
        return f"{self.value:+.1f} [{self.low:+.1f}, {self.high:+.1f}]"


class Claim(NamedTuple):
    """A number of the paper's list, what it says, and on which side it is looked at."""

    name: str
    text: str
    contrast: Contrast
    side: str
    """`inside` or `outside`."""
    detail: bool = False
    """Part of a mean that is a claim of its own."""


class Scores:
    """Per-image answers of the models whose names begin with a prefix, which is left out."""

    def __init__(self, found: Mapping[str, Mapping[str, Answers]], prefix: str = "") -> None:
        self._runs: dict[str, list[Answers]] = {
            name.removeprefix(prefix): list(runs.values())
            for name, runs in found.items()
            if name.startswith(prefix)
        }
        self._draws: Draws = {}

    def runs(self, name: str, data: Sequence[str]) -> list[Answers]:
        """The runs of a model that were scored on all of `data`."""
        return [run for run in self._runs.get(name, ()) if set(data) <= set(run)]

    def contrast(self, models: Contrast, data: Sequence[str]) -> Difference | None:
        """The sum of the models' means, each times its factor; None where one was not scored."""
        if not all(self.runs(name, data) for name in models):
            return None
        value, drawn = 0.0, np.zeros(1)
        for name, factor in models.items():
            runs = self.runs(name, data)
            value += factor * float(np.mean([[run[key].mean() for key in data] for run in runs]))
            drawn = drawn + factor * resampled(runs, data, self._draws)
        low, high = np.percentile(drawn, [2.5, 97.5])
        return Difference(100 * value, 100 * float(low), 100 * float(high))


def minus(first: Sequence[str] | str, second: Sequence[str] | str) -> Contrast:
    """The mean of the first models minus the mean of the second."""
    factors: dict[str, float] = {}
    for names, sign in ((first, 1), (second, -1)):
        chosen = [names] if isinstance(names, str) else names
        for name in chosen:
            factors[name] = factors.get(name, 0) + sign / len(chosen)
    return factors


def claims() -> list[Claim]:
    """All comparisons, in the order of the list."""
    found: list[Claim] = []

    def add(
        name: str, text: str, contrast: Contrast, side: str = "outside", detail: bool = False
    ) -> None:
        found.append(Claim(name, text, contrast, side, detail))

    add("M1", "vanilla gains inside over zero-shot", minus("vanilla", "zero-shot"), "inside")
    add("M1", "vanilla loses outside against zero-shot", minus("zero-shot", "vanilla"))
    add("M2", "distillation without masks beats vanilla outside", minus("no-mask", "vanilla"))
    add("M2", "it lies above the middle of vanilla and zero-shot outside",
        minus("no-mask", ("vanilla", "zero-shot")))  # fmt: skip
    for fill in ("single", "multi"):
        add("M3", f"{fill}-fill beats no fill outside, mean of all masks",
            minus(_over_masks(fill), _over_masks("none")))  # fmt: skip
    add("M3", "single-fill beats multi-fill outside, mean of all masks",
        minus(_over_masks("single"), _over_masks("multi")))  # fmt: skip
    add("M3", "multi-fill beats single-fill inside, mean of all masks",
        minus(_over_masks("multi"), _over_masks("single")), "inside")  # fmt: skip
    for mask in MASKS:
        for better, worse in (("single", "none"), ("multi", "none"), ("single", "multi")):
            add("M3", f"{mask}: {better} beats {worse} outside",
                minus(f"{mask}-{better}", f"{mask}-{worse}"), detail=True)  # fmt: skip
    for better, worse in (("object", "random"), ("random", "context"), ("object", "context")):
        add("M4", f"{better} masks beat {worse} ones outside, mean of all fills",
            minus(_over_fills(better), _over_fills(worse)))  # fmt: skip
        for fill in FILLS:
            add("M4", f"{fill}: {better} masks beat {worse} ones outside",
                minus(f"{better}-{fill}", f"{worse}-{fill}"), detail=True)  # fmt: skip
    for share in SHARES:
        for side in ("inside", "outside"):
            add("M6", f"WiSE-FT {share} % beats vanilla {side}",
                minus(f"wise-ft-{share}", "vanilla"), side)  # fmt: skip
            add("M6", f"WiSE {share} % of object-single gains {side}",
                minus(f"object-wise-{share}", "object-single"), side)  # fmt: skip
    add("M7", "WiSE-KD beats vanilla outside", minus("wise-kd", "vanilla"))
    add("M7", "WiSE-KD added to object-single gains outside",
        minus("object-wise-kd", "object-single"))  # fmt: skip
    add("M7", "WiSE-KD helps vanilla more than object-single outside",
        {"wise-kd": 1, "vanilla": -1, "object-wise-kd": -1, "object-single": 1})  # fmt: skip
    for other in ("vanilla", "lp-ft", "l2-sp", "flyp", "no-mask", "wise-ft-50", "wise-kd", "soup"):
        for side in ("outside", "inside"):
            add("main", f"object-single beats {other} {side}",
                minus("object-single", other), side)  # fmt: skip
    for other in ("object-other-class", "object-low-relevance", "object-soup"):
        for side in ("outside", "inside"):
            add("beyond", f"{other} beats object-single {side}",
                minus(other, "object-single"), side)  # fmt: skip
    return found


def _over_masks(fill: str) -> list[str]:
    return [f"{mask}-{fill}" for mask in MASKS]


def _over_fills(mask: str) -> list[str]:
    return [f"{mask}-{fill}" for fill in FILLS]
