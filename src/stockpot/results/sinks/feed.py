"""Several sinks at once; one that fails is let go, and nothing that was measured is lost."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from stockpot.errors import BadParameterError, UserError
from stockpot.listings import one_line
from stockpot.results.schema import CellResult
from stockpot.results.sinks import sinks
from stockpot.results.sinks.sink import Sink

Sinks = str | Sequence[str] | Mapping[str, Mapping[str, Any] | None]
"""Names, or names with parameters."""


def chosen_sinks(given: Sinks | None) -> dict[str, dict[str, Any]]:
    """The sinks by name with their parameters, checked."""
    if not given:
        return {}
    names = [part.strip() for part in given.split(",")] if isinstance(given, str) else given
    asked = names if isinstance(names, Mapping) else dict.fromkeys(names)
    if not isinstance(names, Mapping) and len(asked) < len(names):
        raise BadParameterError(f"a sink is given twice: {', '.join(names)}.")
    return {name: sinks.get(name).validate(params or {}) for name, params in asked.items()}


class Feed:
    """The open sinks of a run.

    Opening fails before anything is measured: a package that is missing is for the user to mend. A
    sink that fails later is named in a warning and told nothing more.
    """

    def __init__(self, given: Sinks | None, folder: str | Path | None = None) -> None:
        place = None if folder is None else Path(folder)
        self._open: dict[str, Sink] = {}
        for name, params in chosen_sinks(given).items():
            try:
                self._open[name] = sinks.get(name)(place, **params)
            except UserError:
                raise
            except Exception as problem:  # whatever a tracker raises when it cannot be reached
                raise UserError(f"the sink {name} cannot be opened: {one_line(problem)}.") from None

    def take(self, cell: CellResult) -> None:
        """Tell all sinks."""
        for name, sink in list(self._open.items()):
            try:
                sink.take(cell)
            except Exception as problem:
                del self._open[name]
                self._warn(name, problem)

    def __enter__(self) -> Feed:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name, sink in self._open.items():
            try:
                sink.close()
            except Exception as failure:
                self._warn(name, failure)

    @staticmethod
    def _warn(name: str, problem: Exception) -> None:
        warnings.warn(
            f"the sink {name} failed and is told nothing more ({one_line(problem)}); results are "
            "saved as before.",
            stacklevel=2,
        )
