"""The file in which a person is asked for labels: a line per picture, its label to be filled in."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import NamedTuple

from stockpot.errors import BadDataError
from stockpot.files import csv_cell, csv_name, write_atomic
from stockpot.foreign import reading

COLUMNS = ("file", "label", "chance", "asked")


class Line(NamedTuple):
    """One picture that was asked for."""

    file: str
    label: str
    """Empty until somebody filled it in."""
    chance: float
    asked: str
    """By which question; what was drawn for another one cannot be weighed for this one."""


def read_lines(path: Path) -> list[Line]:
    """The lines of a file; none where it is not there yet. A column `file` and `label` suffice."""
    if not path.exists():
        return []
    with reading(f"labels: {path}"), path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    found: dict[str, Line] = {}
    for number, row in enumerate(rows, 2):
        name, label = (row.get(key) for key in COLUMNS[:2])
        if name is None or label is None:
            raise BadDataError(f"labels: expected the columns file and label in {path}.")
        name, label = csv_name(name), csv_name(label)
        if name in found:
            raise BadDataError(f"labels: {path}, line {number}: {name} is there twice.")
        try:
            chance = float(row.get("chance") or 0)
        except ValueError:
            raise BadDataError(
                f"labels: {path}, line {number}: the chance {row['chance']!r} is no number.",
                hint="Leave that column as it was written.",
            ) from None
        found[name] = Line(name, label.strip(), chance, row.get("asked") or "")
    return list(found.values())


def write_lines(path: Path, lines: list[Line]) -> None:
    """Write all lines; the file is there whole or as it was."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows(
        [csv_cell(line.file), csv_cell(line.label), repr(line.chance), line.asked] for line in lines
    )
    write_atomic(path, text.getvalue())
