"""Read what `measure.py` wrote, and compare soups image by image."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stockpot.results.statistics import wilson
from stockpot.season.matrix import Matrix

THREATS = ("linf 8/255", "l2 128/255", "l1 12")
OWN = {"linf": THREATS[0], "l2": THREATS[1], "l1": THREATS[2], "nominal": "clean"}


@dataclass(frozen=True)
class Attacked:
    """Soups x images under each threat, their union, and clean."""

    members: tuple[str, ...]
    n: int
    data: str
    matrices: dict[str, Matrix]

    @property
    def weights(self) -> np.ndarray:
        """One row per soup."""
        return next(iter(self.matrices.values())).weights

    def row(self, *weights: float) -> int:
        """The soup with these weights."""
        found = np.flatnonzero(np.abs(self.weights - np.array(weights)).sum(axis=1) < 1e-6)
        if not len(found):
            raise KeyError(weights)
        return int(found[0])

    def line(self, first: int, second: int, low: float = 0.0, high: float = 1.0) -> list[int]:
        """Soups of two members, by the second's weight."""
        others = [c for c in range(self.weights.shape[1]) if c not in (first, second)]
        share = self.weights[:, second]
        inside = (share >= low - 1e-9) & (share <= high + 1e-9)
        alone = np.abs(self.weights[:, others]).sum(axis=1) < 1e-9
        rows = np.flatnonzero(inside & alone)
        return [int(row) for row in rows[np.argsort(share[rows])]]


def read_attacked(path: Path) -> Attacked | None:
    """One file of `measure.py threats`, or several that hold parts of the soups."""
    parts = [_read(part) for part in sorted(path.parent.glob(f"{path.stem}*{path.suffix}"))]
    if not parts:
        return None
    matrices = {
        condition: Matrix(
            *(
                np.concatenate([getattr(part.matrices[condition], field) for part in parts])
                for field in ("weights", "correct", "loss")
            )
        )
        for condition in parts[0].matrices
    }
    return Attacked(parts[0].members, parts[0].n, parts[0].data, matrices)


def _read(path: Path) -> Attacked:
    with np.load(path) as stored:
        facts = json.loads(str(stored["facts"]))
        weights = stored["weights"]
        matrices = {}
        for key in stored.files:
            if key.startswith("correct:"):
                correct = np.unpackbits(stored[key], axis=1, count=facts["n"]).astype(bool)
                loss = (~correct).astype(np.float32)
                matrices[key.partition(":")[2]] = Matrix(weights, correct, loss)
    return Attacked(tuple(facts["members"]), facts["n"], facts["data"], matrices)


@dataclass(frozen=True)
class Shifted:
    """Soups x images of every cell, the members alone, and their output ensemble."""

    facts: dict[str, Any]
    cells: dict[str, Matrix]
    alone: dict[str, np.ndarray]
    ensemble: dict[str, np.ndarray]


def read_shifted(path: Path) -> Shifted | None:
    """The file of `measure.py shift`."""
    if not path.exists():
        return None
    with np.load(path) as stored:
        facts = json.loads(str(stored["facts"]))
        weights = stored["weights"]
        cells, alone, ensemble = {}, {}, {}
        for name in facts["cells"]:
            n = facts["n_source"] if name == "source" else facts["n"]
            correct = np.unpackbits(stored[f"correct:{name}"], axis=1, count=n).astype(bool)
            loss = np.exp2((stored[f"loss:{name}"].astype(np.float32) - 128) / 8)
            cells[name] = Matrix(weights, correct, loss)
            alone[name] = np.unpackbits(stored[f"alone:{name}"], axis=1, count=n).astype(bool)
            ensemble[name] = np.unpackbits(stored[f"ensemble:{name}"], count=n).astype(bool)
    return Shifted(facts, cells, alone, ensemble)


def share(flags: np.ndarray) -> dict[str, float]:
    """A proportion in percent with its Wilson interval."""
    right, n = int(flags.sum()), int(flags.size)
    interval = wilson(right, n)
    return {
        "value": 100 * right / n,
        "low": 100 * interval.low,
        "high": 100 * interval.high,
        "n": n,
    }


def difference(better: np.ndarray, worse: np.ndarray) -> dict[str, float]:
    """The paired difference of two accuracies in points, with a 95 % interval over images."""
    change = better.astype(float) - worse.astype(float)
    middle = 100 * change.mean()
    half = 196 * change.std(ddof=1) / np.sqrt(change.size)
    return {"value": middle, "low": middle - half, "high": middle + half, "n": int(change.size)}


def shown(score: dict[str, float]) -> str:
    """A score with its interval."""
    return f"{score['value']:.1f} [{score['low']:.1f}, {score['high']:.1f}]"


def mixture(members: tuple[str, ...], weights: np.ndarray) -> str:
    """A soup in words."""
    parts = [f"{w:g} {m}" for m, w in zip(members, weights, strict=True) if abs(w) > 1e-9]
    return " + ".join(parts).replace("+ -", "- ")
