"""Several results as a notebook shows them, and in one line."""

from __future__ import annotations

from collections.abc import Sequence

from stockpot.notebook import table_html
from stockpot.results.headline import headline_columns, headline_rows, images_of, split_by_data
from stockpot.results.schema import CellResult


def results_line(results: Sequence[CellResult]) -> str:
    """How many results of what."""
    parts = {
        noun: len(dict.fromkeys(getattr(cell.key, field) for cell in results))
        for noun, field in (("models", "model"), ("measures", "measure"), ("datasets", "data"))
    }
    counts = ", ".join(f"{count} {noun}" for noun, count in parts.items())
    return f"Results({len(results)} cells: {counts})"


def results_html(results: Sequence[CellResult]) -> str:
    """One table for each dataset: models down, headline scores across."""
    tables = []
    for data, cells in split_by_data(results).items():
        columns = headline_columns(cells)
        rows = [
            [model, *(shown.text for shown in row)]
            for model, row in headline_rows(cells, columns).items()
        ]
        title = f"{data}: {images_of(cells)}, 95 % intervals"
        tables.append(table_html(["model", *(column.title for column in columns)], rows, title))
    return "".join(tables)
