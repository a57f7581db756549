"""One run of a tracker for each model, opened when its first result comes."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any

from stockpot.errors import MissingDependencyError
from stockpot.results.schema import CellResult, Scalar, Score

Numbers = dict[str, float]
_PARTS = {"class", "corruption", "severity", "turn", "group", "curve", "detector"}


class Sink:
    """What a tracker offers: to open a run, to take numbers, to close it."""

    def __init__(
        self,
        opened: Callable[[str, dict[str, Scalar]], Any],
        told: Callable[[Any, Numbers], object],
        closed: Callable[[Any], object],
    ) -> None:
        """Three functions of a tracker.

        Args:
            opened: a run for a model, by its name and what is known of it.
            told: gives a run numbers by name.
            closed: ends a run.
        """
        self._opened, self._told, self._closed = opened, told, closed
        self._runs: dict[str, Any] = {}

    def take(self, cell: CellResult) -> None:
        """Pass on the scores of a finished cell."""
        model = cell.key.model
        if model not in self._runs:
            self._runs[model] = self._opened(model, facts(cell))
        self._told(self._runs[model], numbers(cell))

    def close(self) -> None:
        """End all runs; what has been told stays."""
        while self._runs:
            _, run = self._runs.popitem()
            self._closed(run)


def facts(cell: CellResult) -> dict[str, Scalar]:
    """What is known of a model and of the code that measures it."""
    return {
        "model": cell.key.model,
        "source": cell.model.source,
        "model_fingerprint": cell.model.fingerprint,
        "architecture": cell.model.architecture,
        "parameters": cell.model.parameters,
        "training_seed": cell.key.training_seed,
        "stockpot": cell.provenance.stockpot,
        "commit": cell.provenance.commit,
        **{f"sweep_{key}": value for key, value in cell.key.sweep.items()},
    }


def numbers(cell: CellResult) -> Numbers:
    """Every score but those of single classes, by data, measure, metric and condition.

    A score of the whole data brings the ends of its interval.
    """
    found: Numbers = {}
    for score in cell.scores:
        if "class" in score.condition:
            continue
        name = score_name(cell, score)
        found[name] = score.value
        if not _PARTS & score.condition.keys():
            ends = {f"{name}/low": score.ci_low, f"{name}/high": score.ci_high}
            found |= {end: value for end, value in ends.items() if value is not None}
    return found


def score_name(cell: CellResult, score: Score) -> str:
    """`icons/corruption/error/corruption-fog/severity-3`: letters that every tracker takes."""
    condition = (f"{key}-{value}" for key, value in sorted(score.condition.items()))
    parts = (cell.key.data, cell.key.measure, score.metric, *condition)
    return "/".join(re.sub(r"[^A-Za-z0-9_.-]+", "_", part) for part in parts)


def library(name: str, package: str = "") -> Any:
    """A tracker's package, or an error that says how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as problem:
        package = package or name
        raise MissingDependencyError(
            f"this sink needs the package {package} ({problem}).", hint=f"pip install {package}"
        ) from problem
