"""Scores of a corruption x severity grid, gathered into a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stockpot.results.schema import CellResult, Score


class CorruptionTable(NamedTuple):
    """One model's errors by corruption and severity, and CE where a baseline gave one."""

    model: str
    severities: list[int]
    rows: list[tuple[str, list[Score | None], Score | None]]
    """Corruption, its error at each severity, its CE."""


def corruption_tables(cells: Sequence[CellResult]) -> list[CorruptionTable]:
    """A table for every cell that measured corruptions."""
    tables = []
    for cell in cells:
        errors: dict[str, dict[int, Score]] = {}
        ratios: dict[str, Score] = {}
        for score in cell.scores:
            name = str(score.condition.get("corruption", ""))
            severity = score.condition.get("severity")
            if score.metric == "error" and isinstance(severity, int):
                errors.setdefault(name, {})[severity] = score
            elif score.metric == "ce":
                ratios[name] = score
        if not errors:
            continue
        severities = sorted({severity for found in errors.values() for severity in found})
        rows = [
            (name, [found.get(severity) for severity in severities], ratios.get(name))
            for name, found in errors.items()
        ]
        tables.append(CorruptionTable(cell.key.model, severities, rows))
    return tables
