"""Notes of many cells as few lines: each once, those that differ only in numbers together."""

from __future__ import annotations

import re
from collections.abc import Sequence

from stockpot.results.schema import CellResult
from stockpot.results.trust import audited_notes

_NUMBER = re.compile(r"(?<![\w/.-])\d[\d,]*(?:\.\d+)?(?![\w/-])")


def gathered_notes(cells: Sequence[CellResult], beside: Sequence[CellResult] = ()) -> list[str]:
    """Every note once; one that is not true of all models says of which it is.

    Notes that say the same with other numbers are one line, with the least and the most of each.

    Args:
        cells: whose notes.
        beside: all results there are, among which audits are looked for; the cells by default.
    """
    models = {cell.key.model for cell in cells}
    said: dict[str, dict[str, list[str]]] = {}
    for cell in cells:
        for note in audited_notes(cell, beside or cells):
            of = said.setdefault(_NUMBER.sub("#", note), {}).setdefault(note, [])
            if cell.key.model not in of:
                of.append(cell.key.model)
    lines = []
    for notes in said.values():
        of = list(dict.fromkeys(model for names in notes.values() for model in names))
        note = together(list(notes))
        lines.append(note if len(of) == len(models) else f"{', '.join(of)}: {note}")
    return sorted(lines)


def together(notes: Sequence[str]) -> str:
    """Notes that differ only in numbers as one, with ranges where they differ."""
    columns = [_NUMBER.findall(note) for note in notes]
    ranges = iter([_range(values) for values in zip(*columns, strict=True)])
    return _NUMBER.sub(lambda _: next(ranges), notes[0])


def _range(values: Sequence[str]) -> str:
    ordered = sorted(set(values), key=lambda text: float(text.replace(",", "")))
    return ordered[0] if len(ordered) == 1 else f"{ordered[0]} to {ordered[-1]}"
