"""Several results as one value: a list that can be turned into a frame or another format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stockpot.results.schema import CellResult

if TYPE_CHECKING:
    import pandas


class Results(list[CellResult]):
    """Results in the order in which they were asked for."""

    def to_frame(self) -> pandas.DataFrame:
        """A pandas frame with one row per score: value, interval, n, the whole condition."""
        from stockpot.results.exports.rows import frame

        return frame(self)

    def export(self, format: str, out: str | Path) -> list[Path]:
        """Write them as `csv`, `parquet`, `latex`, ...; see `stockpot export --help`."""
        from stockpot.results.exports import export

        return export(self, format, out)
