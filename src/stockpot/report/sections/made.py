"""How the models of a run were made: by which method, of which members, with which parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from stockpot.report.design import Cell, Column, score_cell, table
from stockpot.results.manifest import made_models
from stockpot.results.schema import CellResult
from stockpot.results.summary.models import summary

_RECORD = "stockpot.json"
_PARENTS = ("base", "member", "model")


def made_table(results: Sequence[CellResult], folders: Sequence[Path]) -> Markup | None:
    """A row for every model that a run folder holds, with the first numbers of the summary."""
    found: dict[str, Mapping[str, Any]] = {}
    for folder in folders:
        for path in made_models(folder):
            if (path / _RECORD).is_file():
                record = json.loads((path / _RECORD).read_text(encoding="utf-8"))
                found.setdefault(path.name, record)
    if not found:
        return None
    columns = [c for c in summary(results).columns if set(c.scores) & set(found)][:3]
    heads = [Column("model", number=False), Column("made by", number=False, filter=len(found) > 5),
             Column("of", number=False), Column("with", number=False, fold=1),
             *(Column(column.title, note=column.about) for column in columns)]  # fmt: skip
    rows = [
        [Cell(name), Cell(f"{record.get('verb')} {record.get('method')}"), Cell(_of(record)),
         Cell(_with(record) or "-"), *(score_cell(column.scores.get(name)) for column in columns)]
        for name, record in found.items()
    ]  # fmt: skip
    return table("made", heads, rows)


def _of(record: Mapping[str, Any]) -> str:
    """Its parents, the base first."""
    inputs = [one for one in record.get("inputs", ()) if one.get("role") in _PARENTS]
    named = [f"{one['name']} (base)" if one["role"] == "base" else one["name"] for one in inputs]
    return ", ".join(map(str, named)) or "-"


def _with(record: Mapping[str, Any]) -> str:
    """Parameters that say something."""
    told = []
    for name, value in record.get("parameters", {}).items():
        if isinstance(value, str | int | float) and value not in ("", False):
            told.append(f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}")
    return ", ".join(told)
