"""Several results as one value: a list that can be turned into a frame or another format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stockpot.results.in_notebooks import results_html, results_line
from stockpot.results.schema import CellResult

if TYPE_CHECKING:
    import pandas


class Results(list[CellResult]):
    """Results in the order in which they were asked for."""

    def __repr__(self) -> str:
        return results_line(self)

    def _repr_html_(self) -> str:
        return results_html(self)

    def to_frame(self) -> pandas.DataFrame:
        """A pandas frame with one row per score: value, interval, n, the whole condition."""
        from stockpot.results.exports.rows import frame

        return frame(self)

    def export(self, format: str, out: str | Path) -> list[Path]:
        """Write them as `csv`, `parquet`, `latex`, ...; see `stockpot export --help`."""
        from stockpot.results.exports import export

        return export(self, format, out)
