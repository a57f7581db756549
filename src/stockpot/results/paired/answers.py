"""How right two models are about each image, by score.

An image that stands in a cell several times (once per corruption and severity) counts once, with
the share of its copies that are right.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stockpot.results.schema import CellResult

Answers = NDArray[np.float64]
SEARCHED = "perturbed accuracy"
CORRUPTED = "corruption accuracy"
ASIDE = ("covered", "known", "validated", "reconstructed", "perturbed", "moved")
"""Records of what was asked, not of who was right."""
_WITHSTOOD = "withstood"


class Both(NamedTuple):
    """Answers of two models to the same images."""

    a: Answers
    b: Answers


def shared(first: CellResult, second: CellResult) -> list[str]:
    """Records of single images that both cells have."""
    return [name for name in first.outcomes if name in second.outcomes and name not in ASIDE]


def answers(first: CellResult, second: CellResult) -> dict[str, Both]:
    """By metric, how right both are about each image."""
    found: dict[str, Both] = {}
    copies = []
    for name in shared(first, second):
        both = _both(first, second, name)
        if name == _WITHSTOOD:
            kept = judged(first, second)
            found[SEARCHED] = Both(both.a[kept], both.b[kept])
        elif _is_copy(first, name):
            copies.append(both)
        else:
            found["accuracy" if name == "correct" else name] = both
    if copies:
        found[CORRUPTED] = Both(*np.mean(copies, axis=0))
    return found


def conditions(first: CellResult, second: CellResult) -> dict[str, Both]:
    """By corruption (its severities together), norm or other condition, where there are several."""
    found: dict[str, list[Both]] = {}
    for name in shared(first, second):
        if ":" in name and _whole(first, second, name):
            # A corruption's name is followed by its severity; other names say all they say.
            place = name.rpartition(":")[0] if _is_copy(first, name) else condition_of(name)
            found.setdefault(place, []).append(_both(first, second, name))
    if len(found) < 2:
        return {}
    return {place: Both(*np.mean(parts, axis=0)) for place, parts in found.items()}


def condition_of(record: str) -> str:
    """The name of a condition that has a record of its own."""
    return record.replace(":", " ")


def judged(first: CellResult, second: CellResult) -> NDArray[np.bool_]:
    """Images that were accepted as their class in both searches."""
    return first.outcome("validated") & second.outcome("validated")


def _is_copy(cell: CellResult, name: str) -> bool:
    return cell.key.measure == "corruption" and ":" in name


def _both(first: CellResult, second: CellResult, name: str) -> Both:
    return Both(*(cell.outcome(name).astype(np.float64) for cell in (first, second)))


def _whole(first: CellResult, second: CellResult, name: str) -> bool:
    """Whether a record is about the data's own images."""
    return name not in first.outcome_sizes and name not in second.outcome_sizes
