"""The soup explorer: the accuracy of every stored soup, to drag through in a triangle or a line.

Numbers come from the matrix that a seasoning stored (soups x images, for each condition); between
stored soups nothing is made up, and the handle jumps from one to the next.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from stockpot.report.design import json_script
from stockpot.report.design.table import slug
from stockpot.results.manifest import made_models
from stockpot.results.statistics import share_interval

_MATRIX, _RECORD = "season_matrix.npz", "stockpot.json"
_FACTS = "facts.json"
_MOST = 4000
"""Soups of one explorer; a page with more would be slow."""


class SoupExplorer(NamedTuple):
    """One pool of members."""

    name: str
    title: str
    words: str
    members: list[str]
    corners: int
    """Three for a triangle, two for a line."""
    conditions: list[str]
    data: Markup


def stored_soups(folders: Sequence[Path]) -> list[Path]:
    """Folders with a stored matrix: made models of a run folder, or the folders themselves."""
    found: list[Path] = []
    for folder in folders:
        if folder.is_dir():
            found += [p for p in (folder, *made_models(folder)) if (p / _MATRIX).is_file()]
            facts = [folder / _FACTS, *sorted(folder.glob(f"*/{_FACTS}"))]
            found += [path.parent for path in facts if _names_conditions(path)]
    return found


class _Matrix(NamedTuple):
    """What a seasoning stored: weights of soups, and whether each was right about each image."""

    weights: NDArray[np.float64]
    correct: NDArray[np.bool_]
    groups: NDArray[np.int64] | None


def _names_conditions(path: Path) -> bool:
    """Whether these are the facts of stored soups; other files may be called so."""
    if not path.is_file() or not (path.parent / "00.npz").is_file():
        return False
    facts = json.loads(path.read_text(encoding="utf-8"))
    return isinstance(facts, dict) and bool(facts.get("conditions"))


def soup_explorers(folders: Sequence[Path]) -> list[SoupExplorer]:
    """An explorer for every stored matrix whose members can be told."""
    found = []
    for folder in folders:
        if (folder / _FACTS).is_file():
            facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
            files = [folder / f"{number:02}.npz" for number in range(len(facts["conditions"]))]
            matrices = dict(zip(facts["conditions"], map(_read, files), strict=True))
            found.append(_explorer(folder.name, list(facts.get("members", ())), matrices, "images"))
        else:
            details = json.loads((folder / _RECORD).read_text(encoding="utf-8"))["details"]
            matrix = _read(folder / _MATRIX)
            shots = len(details.get("selected_on", ()))
            which = "images that the choice saw" if matrix.correct.shape[1] == shots else "images"
            members = list(details["members"])
            found.append(_explorer(folder.name, members, {"accuracy": matrix}, which))
    return [one for one in found if one is not None]


def _read(path: Path) -> _Matrix:
    """As `season/matrix.py` writes it; a page stands on files alone."""
    with np.load(path, allow_pickle=False) as stored:
        correct = np.unpackbits(stored["correct"], axis=1, count=int(stored["n"])).astype(bool)
        groups = stored.get("groups")
        known = groups if groups is not None and len(groups) else None
        return _Matrix(stored["weights"], correct, known)


def _explorer(
    title: str, members: list[str], matrices: dict[str, _Matrix], which: str
) -> SoupExplorer | None:
    first = next(iter(matrices.values()))
    count, wide = first.weights.shape
    if (
        wide < 2
        or not 2 < count <= _MOST
        or any(len(m.weights) != count for m in matrices.values())
    ):
        return None
    names = members if len(members) == wide else [f"member {n + 1}" for n in range(wide)]
    scores = {name: [_score(row, one.groups) for row in one.correct]
              for name, one in matrices.items()}  # fmt: skip
    images = first.correct.shape[1]
    name = f"soup-{slug(title)}"
    values: dict[str, Any] = {
        "members": names,
        "weights": np.round(first.weights, 6).tolist(),
        "scores": scores,
    }
    words = f"{count:,} stored soups of {wide} members, {images:,} {which}."
    return SoupExplorer(name, title, words, names, 3 if wide > 2 else 2, list(matrices),
                        json_script(f"{name}-data", values))  # fmt: skip


def _score(right: np.ndarray[Any, np.dtype[np.bool_]], groups: Any) -> list[float]:
    interval = share_interval(right, groups)
    return [round(float(right.mean()), 5), round(interval.low, 5), round(interval.high, 5)]
