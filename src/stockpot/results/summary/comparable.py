"""Which cells may stand in one table: the same measure of the same images under the same rules."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from stockpot.results.schema import CellResult

_UNSHOWN = ("batch_size", "device", "workers")


class Comparable(NamedTuple):
    """Cells that may be compared, and what sets them apart from others of the same name."""

    measure: str
    data: str
    apart: str
    """Empty unless the same measure ran on the same data in another way too."""
    cells: list[CellResult]


def comparable(results: Sequence[CellResult]) -> list[Comparable]:
    """Cells by measure and dataset, in order of appearance; other images, settings or conventions
    make another group, so that no column holds numbers of two questions."""
    groups: dict[tuple[str, ...], list[CellResult]] = {}
    for cell in results:
        groups.setdefault(question_of(cell), []).append(cell)
    found = []
    for question, cells in groups.items():
        alike = [other for other in groups if other[:2] == question[:2]]
        apart = _apart(cells[0], [groups[other][0] for other in alike if other != question])
        found.append(Comparable(question[0], question[1], apart, cells))
    return found


def question_of(cell: CellResult) -> tuple[str, ...]:
    """What a cell was asked, whichever its model: measure, data, images, rules and settings."""
    key = cell.key
    params = json.dumps({**key.params, **key.contents}, sort_keys=True, default=str)
    images = f"{cell.data.fingerprint}:{cell.data.n}"
    return key.measure, key.data, images, cell.convention, params


def asked_with(cell: CellResult) -> tuple[int, bool, str, bool]:
    """With which seed, precision and passes a question was asked; the usual comes first."""
    key = cell.key
    return key.seed, key.precision != "fp32", key.precision, key.compiled


def _apart(cell: CellResult, others: Sequence[CellResult]) -> str:
    """What differs from the others, in words; rules are long, and told where nothing else is."""
    if not others:
        return ""
    said = []
    if any(other.data.n != cell.data.n for other in others):
        said.append(f"{cell.data.n:,} images")
    elif any(other.data.fingerprint != cell.data.fingerprint for other in others):
        said.append(f"images {cell.data.fingerprint[:8]}")
    for name, value in cell.key.params.items():
        if name not in _UNSHOWN and any(o.key.params.get(name) != value for o in others):
            said.append(f"{name} {value}")
    for name, value in cell.key.contents.items():
        if any(other.key.contents.get(name) != value for other in others):
            said.append(f"{name} {value[:8]}")
    return ", ".join(said) or cell.convention
