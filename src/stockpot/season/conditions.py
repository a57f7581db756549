"""Soups x images under several conditions (threats, corruptions), kept in a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stockpot.files import write_atomic
from stockpot.season.matrix import Matrix


class Conditions(NamedTuple):
    """The same soups under every condition, and what else is known of them."""

    matrices: dict[str, Matrix]
    facts: dict[str, Any]

    @property
    def weights(self) -> NDArray[np.float64]:
        """One row per soup."""
        return next(iter(self.matrices.values())).weights

    def line(self, first: int, second: int, low: float = 0.0, high: float = 1.0) -> list[int]:
        """The soups of two members alone, by the second's weight, where it is within bounds."""
        others = np.delete(self.weights, [first, second], axis=1)
        share = self.weights[:, second]
        inside = (share >= low - 1e-9) & (share <= high + 1e-9)
        rows = np.flatnonzero(inside & (np.abs(others).sum(axis=1) < 1e-9))
        return [int(row) for row in rows[np.argsort(share[rows], kind="stable")]]

    def with_soups(self, more: Mapping[str, Matrix]) -> Conditions:
        """With further soups on the same images."""
        joined = {
            name: Matrix(
                np.concatenate([mine.weights, more[name].weights]),
                np.concatenate([mine.correct, more[name].correct]),
                np.concatenate([mine.loss, more[name].loss]),
                mine.groups,
            )
            for name, mine in self.matrices.items()
        }
        return Conditions(joined, self.facts)

    def save(self, folder: Path) -> None:
        """A compressed file per condition; `facts.json`, which names them, comes last."""
        folder.mkdir(parents=True, exist_ok=True)
        for index, matrix in enumerate(self.matrices.values()):
            matrix.save(folder / f"{index:02}.npz")
        facts = self.facts | {"conditions": list(self.matrices)}
        write_atomic(folder / "facts.json", json.dumps(facts, indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Conditions | None:
        """The inverse of `save`; none where nothing was saved."""
        if not (folder / "facts.json").exists():
            return None
        facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
        names = facts.pop("conditions")
        files = [folder / f"{index:02}.npz" for index in range(len(names))]
        return cls({n: Matrix.read(file) for n, file in zip(names, files, strict=True)}, facts)
