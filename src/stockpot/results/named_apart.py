"""Models that share a name, and cells that answer one question of one model, told apart by name.

Tables and pictures have one row for each name. A model that was changed in its place, or measured
with other options, seeds or precisions into the same folder, would lose all but one of its results.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from stockpot.results.schema import CellResult
from stockpot.results.summary.comparable import asked_with, question_of
from stockpot.results.trust import audited_notes


def models_apart(cells: Sequence[CellResult]) -> list[CellResult]:
    """The cells, with some digits behind the name of a model where another one has it too."""
    who: dict[str, set[str]] = {}
    for cell in cells:
        who.setdefault(cell.key.model, set()).add(_digits(cell))
    return [
        _called(cell, f"{cell.key.model} ({_digits(cell)})")
        if len(who[cell.key.model]) > 1
        else cell
        for cell in cells
    ]


def answers_apart(cells: Sequence[CellResult]) -> list[CellResult]:
    """The same, and where a model answered one question several times, with what it was asked.

    The usual seed and precision need no word.
    """
    found = models_apart(cells)
    first: dict[tuple[str, ...], CellResult] = {}
    for cell in sorted(found, key=asked_with):
        first.setdefault((cell.key.model, *question_of(cell)), cell)
    told = []
    for cell in found:
        usual = first[cell.key.model, *question_of(cell)].key
        words = [f"seed {cell.key.seed}"] if cell.key.seed != usual.seed else []
        words += [cell.key.precision] if cell.key.precision != usual.precision else []
        words += ["compiled"] if cell.key.compiled != usual.compiled else []
        if words:
            # An audit is known by the name of its model: it is told while the two share one.
            notes = audited_notes(cell, found)
            name = f"{cell.key.model} ({', '.join(words)})"
            cell = _called(cell.model_copy(update={"notes": notes}), name)
        told.append(cell)
    return told


def _digits(cell: CellResult) -> str:
    which = json.dumps([cell.key.model_fingerprint, cell.key.model_options], sort_keys=True)
    return hashlib.sha256(which.encode()).hexdigest()[:6]


def _called(cell: CellResult, name: str) -> CellResult:
    return cell.model_copy(update={"key": cell.key.model_copy(update={"model": name})})
