"""F6 to F9: soups on corrupted images, and choosing them with few labels or none."""

from __future__ import annotations

from typing import Any

import numpy as np
from tables import Shifted, difference, mixture, share

from measure import CORRUPTIONS, halves
from stockpot.season.matrix import Matrix, single_soup
from stockpot.season.methods.racing import race
from stockpot.season.plots.labels_needed import SHOTS, curve

Finding = dict[str, Any]


def cells_of(shifted: Shifted) -> list[str]:
    """Corrupted cells."""
    return [name for name in shifted.cells if ":" in name]


def soups_beat_members(shifted: Shifted) -> Finding:
    """F6: the best soup beats every member on shifted sets, but not on the clean one."""
    chosen, scored = halves(shifted.facts["n"], 0)
    rows = []
    for name in ["clean", *cells_of(shifted)]:
        matrix = shifted.cells[name]
        best = matrix.best(chosen)
        member = int(shifted.alone[name][:, chosen].mean(axis=1).argmax())
        rows.append(
            {
                "cell": name,
                "soup": mixture(tuple(shifted.facts["members"]), matrix.weights[best]),
                "soup accuracy": share(matrix.correct[best, scored]),
                "best member": shifted.facts["members"][member],
                "soup minus member": difference(
                    matrix.correct[best, scored], shifted.alone[name][member, scored]
                ),
            }
        )
    gains = [row["soup minus member"] for row in rows[1:]]
    return {
        "clean gain": rows[0]["soup minus member"],
        "cells": len(gains),
        "cells with a gain": sum(gain["value"] > 0 for gain in gains),
        "cells with a gain beyond its interval": sum(gain["low"] > 0 for gain in gains),
        "cells with a loss beyond its interval": sum(gain["high"] < 0 for gain in gains),
        "mean gain": float(np.mean([gain["value"] for gain in gains])),
        "rows": rows,
    }


def labels(shifted: Shifted, draws: int = 50) -> Finding:
    """F7: about a hundred labels choose nearly as well as five hundred."""
    n = shifted.facts["n"]
    shots = numbers_of_labels(n)
    rows = []
    for name in cells_of(shifted):
        means, spread = curve(shifted.cells[name], n // 2, shots, draws)
        rows.append({"cell": name} | {f"{k}": [100 * m, 100 * s] for k, m, s in
                                      zip(shots, means, spread, strict=True)})  # fmt: skip
    mean = {k: float(np.mean([row[f"{k}"][0] for row in rows])) for k in shots}
    sd = {k: float(np.mean([row[f"{k}"][1] for row in rows])) for k in shots}
    return {"shots": shots, "mean": mean, "sd": sd, "rows": rows}


def numbers_of_labels(n: int) -> list[int]:
    """The usual numbers that leave half of the images to score on, and that half itself."""
    return sorted({k for k in SHOTS if k <= n // 2} | {n // 2})


def severity(shifted: Shifted) -> Finding:
    """F8: the nominal member's weight falls as severity rises; who is favoured instead."""
    names = shifted.facts["members"]
    rows = []
    for name in cells_of(shifted):
        matrix = shifted.cells[name]
        top = matrix.weights[matrix.top(5)].mean(axis=0)
        rows.append({"cell": name} | {m: float(w) for m, w in zip(names, top, strict=True)})
    levels = sorted({name.rpartition(":")[2] for name in cells_of(shifted)})
    by_level = {
        level: float(np.mean([r["nominal"] for r in rows if r["cell"].endswith(f":{level}")]))
        for level in levels
    }
    falls = {c: [r["nominal"] for r in rows if r["cell"].startswith(f"{c}:")] for c in CORRUPTIONS}
    return {"nominal weight by severity": by_level, "by corruption": falls, "rows": rows}


def single_against_ensemble(shifted: Shifted) -> Finding:
    """F9: one soup for all cells against the four members' output ensemble, at a quarter of it."""
    chosen, scored = halves(shifted.facts["n"], 0)
    cells = [shifted.cells[name] for name in cells_of(shifted)]
    single = single_soup(cells, [chosen] * len(cells))
    soup = np.concatenate([cell.correct[single, scored] for cell in cells])
    together = np.concatenate([shifted.ensemble[name][scored] for name in cells_of(shifted)])
    own = np.concatenate([cell.correct[cell.best(chosen), scored] for cell in cells])
    alone = np.stack([shifted.alone[n][:, scored].mean(axis=1) for n in cells_of(shifted)])
    return {
        "single soup": mixture(tuple(shifted.facts["members"]), cells[0].weights[single]),
        "single": share(soup),
        "ensemble": share(together),
        "soup of each cell": share(own),
        "best single member": float(100 * alone.mean(axis=0).max()),
        "single minus ensemble": difference(soup, together),
    }


def selection_table(shifted: Shifted, seeds: int = 3) -> list[dict[str, Any]]:
    """Source-selected, label-free, 10- and 100-shot and oracle soups, scored on held-out images."""
    n = shifted.facts["n"]
    free = {
        (item["cell"], item["seed"], item["criterion"]): item["soup"]
        for item in shifted.facts["label_free"]
    }
    rows = []
    for name in cells_of(shifted):
        matrix = shifted.cells[name]
        found: dict[str, list[float]] = {}
        for seed in range(seeds):
            chosen, scored = halves(n, seed)
            order = np.random.default_rng([8, seed]).permutation(chosen)
            # Labelled images of the members' own kind: the validation images where they were
            # measured, else the clean versions of the images to choose on.
            own = shifted.cells.get("source")
            source = own.best() if own else shifted.cells["clean"].best(chosen)
            soups = {
                "source": source,
                "10-shot": matrix.best(order[:10]),
                "100-shot": matrix.best(order[: min(100, len(order))]),
                "oracle": matrix.best(scored),
            }
            for criterion in ("agreement", "entropy", "atc"):
                if (name, seed, criterion) in free:
                    soups[criterion] = free[name, seed, criterion]
            for kind, soup in soups.items():
                found.setdefault(kind, []).append(100 * matrix.correct[soup, scored].mean())
            found.setdefault("best member", []).append(
                100 * shifted.alone[name][:, scored].mean(axis=1).max()
            )
            found.setdefault("ensemble", []).append(100 * shifted.ensemble[name][scored].mean())
        rows.append({"cell": name, "held out": n - n // 2} | found)
    return rows


def racing(shifted: Shifted, draws: int = 20, first: float = 0.03, keep: float = 0.25) -> Finding:
    """Racing against the whole grid: its share of the cost, and what it loses on new images."""
    gaps, costs = [], []
    for name in cells_of(shifted):
        matrix = shifted.cells[name]
        gap, cost = raced(matrix, draws, first, keep)
        gaps += gap
        costs += cost
    return {
        "draws": len(gaps), "mean gap (points)": float(np.mean(gaps)), "sd": float(np.std(gaps)),
        "share of the grid (%)": float(np.mean(costs)),
    }  # fmt: skip


def raced(matrix: Matrix, draws: int, first: float, keep: float) -> tuple[list, list]:
    """Held-out gaps and costs of some draws; half of the images choose."""
    gaps, costs = [], []
    n = matrix.correct.shape[1]
    for seed in range(draws):
        order = np.random.default_rng(seed).permutation(n)
        seen, held = order[: n // 2], order[n // 2 :]

        def judged(alive: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            part = np.ix_(alive, rows)
            return matrix.correct[part].sum(axis=1), matrix.loss[part].sum(axis=1)

        result = race(len(matrix.weights), seen, judged, first=first, keep=keep)
        score = matrix.correct[:, held].mean(axis=1)
        gaps.append(100 * float(score[matrix.best(seen)] - score[result.winner]))
        costs.append(100 * result.images / (len(matrix.weights) * len(seen)))
    return gaps, costs
