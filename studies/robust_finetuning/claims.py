"""The claims M1 to M7 of masked counterfactual fine-tuning as comparisons with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stockpot.results.groups import resampled
from stockpot.results.schema import CellResult
from stockpot.seeds import name_of


class Difference(NamedTuple):
    """One model minus another, in points, with a 95 % interval over images and seeds."""

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
    """A number of the paper's list, what it says, and what came out."""

    name: str
    text: str
    difference: Difference

    @property
    def verdict(self) -> str:
        return self.difference.verdict


class Scores:
    """Per-image outcomes of every model on groups of datasets."""

    def __init__(self, results: Sequence[CellResult]) -> None:
        self._runs: dict[str, dict[str, dict[str, NDArray[np.bool_]]]] = {}
        self._draws: dict[tuple[str, int], NDArray[np.float32]] = {}
        for cell in results:
            if cell.key.measure == "clean":
                runs = self._runs.setdefault(name_of(cell.key.model), {})
                outcome = cell.outcome("correct")
                runs.setdefault(cell.key.model, {})[cell.key.data] = outcome

    def runs(self, name: str, data: Sequence[str]) -> list[dict[str, NDArray[np.bool_]]]:
        """The runs of a model that were scored on all of `data`."""
        return [run for run in self._runs.get(name, {}).values() if set(data) <= set(run)]

    def mean(self, name: str, data: Sequence[str]) -> float:
        runs = self.runs(name, data)
        return 100 * float(np.mean([[run[key].mean() for key in data] for run in runs]))

    def minus(self, first: str, second: str, data: Sequence[str]) -> Difference:
        """Paired: the same images in every resample, and run n against run n."""
        drawn = [resampled(self.runs(name, data), data, self._draws) for name in (first, second)]
        low, high = np.percentile(100 * (drawn[0] - drawn[1]), [2.5, 97.5])
        value = self.mean(first, data) - self.mean(second, data)
        return Difference(value, float(low), float(high))


def claims(scores: Scores, inside: Sequence[str], outside: Sequence[str]) -> list[Claim]:
    """All comparisons that the models at hand allow."""
    found: list[Claim] = []

    def add(name: str, text: str, better: str, worse: str, data: Sequence[str]) -> None:
        if scores.runs(better, data) and scores.runs(worse, data):
            found.append(Claim(name, text, scores.minus(better, worse, data)))

    add("M1", "vanilla gains inside over zero-shot", "vanilla", "zero-shot", inside)
    add("M1", "vanilla loses outside against zero-shot", "zero-shot", "vanilla", outside)
    add("M2", "distillation without masks beats vanilla outside", "no-mask", "vanilla", outside)
    for mask in ("random", "context", "object"):
        for fill in ("single", "multi"):
            add("M3", f"{mask}: {fill}-fill beats no fill outside", f"{mask}-{fill}",
                f"{mask}-none", outside)  # fmt: skip
        add("M3", f"{mask}: single-fill beats multi-fill outside", f"{mask}-single",
            f"{mask}-multi", outside)  # fmt: skip
        add("M3", f"{mask}: multi-fill beats single-fill inside", f"{mask}-multi",
            f"{mask}-single", inside)  # fmt: skip
    for fill in ("none", "single", "multi"):
        add("M4", f"{fill}: object masks beat random ones outside", f"object-{fill}",
            f"random-{fill}", outside)  # fmt: skip
        add("M4", f"{fill}: random masks beat context ones outside", f"random-{fill}",
            f"context-{fill}", outside)  # fmt: skip
    for share in (25, 50, 75):
        add(
            "M6", f"WiSE-FT {share} % beats vanilla outside", f"wise-ft-{share}", "vanilla", outside
        )
        add("M6", f"WiSE-FT {share} % beats vanilla inside", f"wise-ft-{share}", "vanilla", inside)
        add("M6", f"WiSE {share} % of object-single gains outside", f"object-wise-{share}",
            "object-single", outside)  # fmt: skip
        add("M6", f"WiSE {share} % of object-single gains inside", f"object-wise-{share}",
            "object-single", inside)  # fmt: skip
    add("M7", "WiSE-KD beats vanilla outside", "wise-kd", "vanilla", outside)
    add("M7", "WiSE-KD added to object-single gains outside", "object-wise-kd", "object-single",
        outside)  # fmt: skip
    for other in ("lp-ft", "l2-sp", "flyp", "no-mask", "wise-ft-50", "soup"):
        add("main", f"object-single beats {other} outside", "object-single", other, outside)
    add("main", "object-single beats vanilla outside", "object-single", "vanilla", outside)
    add("main", "object-single beats vanilla inside", "object-single", "vanilla", inside)
    for other in ("object-other-class", "object-low-relevance", "object-logits", "object-soup"):
        add("beyond", f"{other} beats object-single outside", other, "object-single", outside)
        add("beyond", f"{other} beats object-single inside", other, "object-single", inside)
    return found
