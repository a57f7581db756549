"""Does each finding of "Seasoning Model Soups" hold here? From what `study.py` saved to the tables.

    python studies/robust_soups/tables.py runs/study --family quarter
    python studies/robust_soups/tables.py                     # README.md from results/ alone

Writes results/LABEL.json and results/LABEL.md and the figures, and puts the tables of choosing
into README.md. Where a soup is chosen and then compared, half of the images choose and the other
half compare: no winner's curse.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from study import CORRUPTIONS, CRITERIA, SOUPED, Looked

from stockpot.files import write_atomic
from stockpot.results.contrast import Contrast, choose_then_judge, halves, paired
from stockpot.results.statistics import wilson
from stockpot.results.tables import fill, markdown, percent
from stockpot.season.matrix import Matrix, single_soup
from stockpot.season.methods.racing import race
from stockpot.season.plots.labels_needed import SHOTS, curve

HERE = Path(__file__).parent
THREATS = ("linf 8/255", "l2 128/255", "l1 12")
OWN = {"linf": THREATS[0], "l2": THREATS[1], "l1": THREATS[2], "nominal": "clean"}
WAYS = ("best member", "ensemble", "source", *CRITERIA, "10-shot", "100-shot", "oracle")
Finding = dict[str, Any]


def line_of(soups: Looked, pair: tuple[int, int], low: float = 0.0, high: float = 1.0) -> list[int]:
    """Soups of two members, by the second's weight."""
    others = [c for c in range(soups.weights.shape[1]) if c not in pair]
    share = soups.weights[:, pair[1]]
    inside = (share >= low - 1e-9) & (share <= high + 1e-9)
    rows = np.flatnonzero(inside & (np.abs(soups.weights[:, others]).sum(axis=1) < 1e-9))
    return [int(row) for row in rows[np.argsort(share[rows])]]


def on_triangle(soups: Looked) -> list[int]:
    """Convex soups of the three robust members, by fifths."""
    return [
        row for row, weights in enumerate(soups.weights)
        if (weights >= -1e-9).all() and abs(weights[3]) < 1e-9
        and np.allclose(np.round(weights * 5), weights * 5, atol=1e-6)
    ]  # fmt: skip


def share(flags: np.ndarray) -> dict[str, float]:
    """A proportion in percent with its Wilson interval."""
    right, n = int(flags.sum()), int(flags.size)
    interval = wilson(right, n)
    return {"value": 100 * right / n, "low": 100 * interval.low, "high": 100 * interval.high,
            "n": n}  # fmt: skip


def points(gain: Contrast, n: int) -> dict[str, float]:
    """A difference in points."""
    return {key: 100 * value for key, value in gain._asdict().items()} | {"n": n}


def gain(first: np.ndarray, second: np.ndarray) -> dict[str, float]:
    return points(paired(first, second), first.size)


def mixture(looked: Looked, row: int, weights: np.ndarray | None = None) -> str:
    """A soup in words."""
    found = looked.weights[row] if weights is None else weights
    members = looked.facts["members"]
    parts = [f"{w:g} {m}" for m, w in zip(members, found, strict=True) if abs(w) > 1e-9]
    return " + ".join(parts).replace("+ -", "- ")


def smooth(soups: Looked) -> Finding:
    """F1: along a line no interior soup falls below the worse end."""
    rows = []
    for pair in ((0, 1), (0, 2), (1, 2)):
        for role in (SOUPED[member] for member in pair):
            scores = 100 * soups.matrices[OWN[role]].accuracy()[line_of(soups, pair)]
            steps = np.diff(scores) * (1 if scores[-1] > scores[0] else -1)
            rows.append(
                {
                    "pair": "-".join(SOUPED[member] for member in pair),
                    "threat": OWN[role],
                    "lowest interior minus lower end": scores[1:-1].min()
                    - min(scores[0], scores[-1]),
                    "largest step against the trend": max(0.0, float(-steps.min())),
                }
            )
    lowest = min(row["lowest interior minus lower end"] for row in rows)
    return {"holds": lowest > -2.0, "lowest dip (points)": lowest, "rows": rows}


def interior_beats_specialist(soups: Looked) -> Finding:
    """F2: for neighbouring norms some interior soup beats the specialist at its own threat."""
    rows = []
    for pair in ((1, 0), (1, 2), (0, 1), (2, 1)):
        correct = soups.matrices[OWN[SOUPED[pair[0]]]].correct
        alone, *inner, _ = line_of(soups, pair)
        found = choose_then_judge(correct[inner], correct[alone])
        rows.append(
            {
                "specialist": SOUPED[pair[0]],
                "soup": mixture(soups, inner[found.best]),
                "gain over the specialist": points(found.gain, found.n),
            }
        )
    return {"holds": any(row["gain over the specialist"]["low"] > 0 for row in rows), "rows": rows}


def joint_training(soups: Looked, joint: dict[str, Looked]) -> Finding:
    """F3: MAX and SAT on (l_inf, l_1) lie above the soups' front."""
    rows = []
    line = line_of(soups, (0, 2))
    pair = [soups.matrices[THREATS[index]].correct[line] for index in (0, 2)]
    both = np.logical_and(*pair)
    best = int(both.mean(axis=1).argmax())
    linf, l1 = (correct.mean(axis=1) for correct in pair)
    order = np.argsort(linf)
    for name, model in joint.items():
        own = [model.matrices[THREATS[index]].correct[0] for index in (0, 2)]
        # The l_1 accuracy of the front at the same l_inf accuracy, by linear interpolation.
        front = float(np.interp(own[0].mean(), linf[order], l1[order]))
        rows.append(
            {
                "model": name,
                "linf": share(own[0]),
                "l1": share(own[1]),
                "l1 above the front (points)": 100 * (float(own[1].mean()) - front),
                "union(linf, l1) minus the best soup's": gain(np.logical_and(*own), both[best]),
            }
        )
    gaps = [row["union(linf, l1) minus the best soup's"]["value"] for row in rows]
    return {"holds": bool(gaps) and min(gaps) > 0, "rows": rows}


def best_union(soups: Looked) -> Finding:
    """F4: the best soup under the union uses only the l_inf and l_1 members."""
    union = soups.matrices["union"]
    accuracy = union.accuracy()
    order = sorted(on_triangle(soups), key=lambda row: -accuracy[row])
    members = [line_of(soups, (m, (m + 1) % 3))[0] for m in range(3)]
    best_member = max(members, key=lambda row: accuracy[row])
    return {
        "holds": abs(soups.weights[order[0]][1]) < 1e-9,
        "best minus best member": gain(union.correct[order[0]], union.correct[best_member]),
        "rows": [
            {"soup": mixture(soups, row), "union": share(union.correct[row])} for row in order[:5]
        ],
    }


def extrapolation(soups: Looked) -> Finding:
    """F5: some weight outside [0, 1] is at least as good for some score."""
    rows = []
    for pair in ((0, 1), (0, 2), (1, 2), (0, 3)):
        inside = line_of(soups, pair)
        outside = [row for row in line_of(soups, pair, -0.4, 1.4) if row not in inside]
        for condition in ("clean", *THREATS, "union") if outside else ():
            correct = soups.matrices[condition].correct
            chosen, judged = halves(correct.shape[1])
            seen = correct[:, chosen].mean(axis=1)
            a, b = (max(rows_of, key=lambda row: seen[row]) for rows_of in (outside, inside))
            rows.append(
                {
                    "pair": "-".join(SOUPED[member] for member in pair),
                    "score": condition,
                    "outside": mixture(soups, a),
                    "inside": mixture(soups, b),
                    "outside minus inside": gain(correct[a, judged], correct[b, judged]),
                }
            )
    gains = [row["outside minus inside"]["value"] for row in rows]
    return {"holds": bool(gains) and max(gains) >= 0, "rows": rows}


def control(line: Looked) -> Finding:
    """F10: independently trained members do not mix."""
    clean = line.matrices["clean"].accuracy()
    barrier = 100 * (min(clean[0], clean[-1]) - clean[1:-1].min())
    return {
        "holds": barrier > 10,
        "barrier in clean accuracy (points)": barrier,
        "rows": [
            {"weight of the other": float(weights[1])}
            | {name: share(matrix.correct[row]) for name, matrix in line.matrices.items()}
            for row, weights in enumerate(line.weights)
        ],
    }


class Shifted:
    """Soups on corrupted images, the members alone, and their output ensemble."""

    def __init__(self, folder: Path) -> None:
        self.soups, self.alone, self.ensemble = (
            Looked.read(folder / name) for name in ("shift", "alone", "ensemble")
        )
        self.cells = {n: m for n, m in self.soups.matrices.items() if ":" in n}
        self.n = next(iter(self.cells.values())).correct.shape[1]

    def soups_beat_members(self) -> Finding:
        """F6: the best soup beats every member on shifted sets, but not on the clean one."""
        chosen, judged = halves(self.n)
        rows = []
        for name in ("clean", *self.cells):
            matrix, alone = self.soups.matrices[name], self.alone.matrices[name].correct
            best = matrix.best(chosen)
            member = int(alone[:, chosen].mean(axis=1).argmax())
            rows.append(
                {
                    "cell": name,
                    "soup": mixture(self.soups, best),
                    "soup accuracy": share(matrix.correct[best, judged]),
                    "best member": SOUPED[member],
                    "soup minus member": gain(matrix.correct[best, judged], alone[member, judged]),
                }
            )
        clean, *gains = (row["soup minus member"] for row in rows)
        return {
            "clean gain": clean,
            "cells": len(gains),
            "cells with a gain": sum(found["value"] > 0 for found in gains),
            "cells with a gain beyond its interval": sum(found["low"] > 0 for found in gains),
            "cells with a loss beyond its interval": sum(found["high"] < 0 for found in gains),
            "mean gain": float(np.mean([found["value"] for found in gains])),
            "rows": rows,
        }

    def numbers_of_labels(self) -> list[int]:
        """The usual numbers that leave half of the images to score on, and that half itself."""
        return sorted({k for k in SHOTS if k <= self.n // 2} | {self.n // 2})

    def labels(self, draws: int = 50) -> Finding:
        """F7: about a hundred labels choose nearly as well as five hundred."""
        shots = self.numbers_of_labels()
        found = {n: curve(matrix, self.n // 2, shots, draws) for n, matrix in self.cells.items()}
        mean, spread = (100 * np.mean([both[i] for both in found.values()], axis=0) for i in (0, 1))
        return {
            "shots": shots,
            "mean": dict(zip(shots, mean.tolist(), strict=True)),
            "sd": dict(zip(shots, spread.tolist(), strict=True)),
        }

    def severity(self) -> Finding:
        """F8: the nominal member's weight falls as severity rises; who is favoured instead."""
        rows = [
            {"cell": name} | dict(zip(SOUPED, m.weights[m.top(5)].mean(axis=0), strict=True))
            for name, m in self.cells.items()
        ]

        def nominal(word: str) -> list[float]:
            return [row["nominal"] for row in rows if word in f"{row['cell']}:"]

        levels = sorted({name.rpartition(":")[2] for name in self.cells})
        return {
            "nominal weight by severity": {x: float(np.mean(nominal(f":{x}:"))) for x in levels},
            "by corruption": {name: nominal(f"{name}:") for name in CORRUPTIONS},
            "rows": rows,
        }

    def single_against_ensemble(self) -> Finding:
        """F9: one soup for all cells against the four members' output ensemble, at a quarter."""
        chosen, judged = halves(self.n)
        cells = list(self.cells.values())
        single = single_soup(cells, [chosen] * len(cells))
        soup = np.concatenate([cell.correct[single, judged] for cell in cells])
        outputs = [self.ensemble.matrices[name].correct[0, judged] for name in self.cells]
        alone = [self.alone.matrices[name].accuracy(judged) for name in self.cells]
        own = [cell.correct[cell.best(chosen), judged] for cell in cells]
        return {
            "single soup": mixture(self.soups, single),
            "single": share(soup),
            "ensemble": share(np.concatenate(outputs)),
            "soup of each cell": share(np.concatenate(own)),
            "best single member": float(100 * np.mean(alone, axis=0).max()),
            "single minus ensemble": gain(soup, np.concatenate(outputs)),
        }

    def selection(self, seeds: int = 3) -> list[dict[str, Any]]:
        """Soups chosen without labels, with few and with all, scored on held-out images."""
        free = {
            (item["cell"], item["seed"], item["criterion"]): item["soup"]
            for item in self.soups.facts["label_free"]
        }
        rows = []
        for name, matrix in self.cells.items():
            found: dict[str, list[float]] = {}
            for seed in range(seeds):
                chosen, judged = halves(self.n, seed)
                order = np.random.default_rng([8, seed]).permutation(chosen)
                soups = {
                    "source": self.soups.matrices["source"].best(),
                    "10-shot": matrix.best(order[:10]),
                    "100-shot": matrix.best(order[:100]),
                    "oracle": matrix.best(judged),
                } | {c: free[name, seed, c] for c in CRITERIA if (name, seed, c) in free}
                scores = {way: matrix.correct[soup, judged].mean() for way, soup in soups.items()}
                scores["best member"] = self.alone.matrices[name].accuracy(judged).max()
                scores["ensemble"] = self.ensemble.matrices[name].accuracy(judged)[0]
                for way, score in scores.items():
                    found.setdefault(way, []).append(100 * float(score))
            rows.append({"cell": name, "held out": len(judged)} | found)
        return rows

    def racing(self, draws: int = 20, first: float = 0.03, keep: float = 0.25) -> Finding:
        """Racing against the whole grid: its share of the cost, and what it loses."""
        gaps, costs = [], []
        for matrix in self.cells.values():
            for seed in range(draws):
                order = np.random.default_rng(seed).permutation(self.n)
                seen, held = order[: self.n // 2], order[self.n // 2 :]
                result = race(len(matrix.weights), seen, _judge(matrix), first=first, keep=keep)
                score = matrix.accuracy(held)
                gaps.append(100 * float(score[matrix.best(seen)] - score[result.winner]))
                costs.append(100 * result.images / (len(matrix.weights) * len(seen)))
        return {
            "draws": len(gaps), "mean gap (points)": float(np.mean(gaps)),
            "sd": float(np.std(gaps)), "share of the grid (%)": float(np.mean(costs)),
        }  # fmt: skip


def _judge(matrix: Matrix) -> Any:
    def judge(alive: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        part = np.ix_(alive, rows)
        return matrix.correct[part].sum(axis=1), matrix.loss[part].sum(axis=1)

    return judge


def members_table(parts: dict[str, Looked]) -> str:
    """Clean and robust accuracy of every member."""
    conditions = ("clean", *THREATS, "union")
    rows = []
    for part in parts.values():
        for row, weights in enumerate(part.weights):
            if weights.max() > 1 - 1e-9:
                scores = [share(part.matrices[name].correct[row]) for name in conditions]
                name = part.facts["members"][int(weights.argmax())]
                rows.append([name, *(percent(*(s[k] / 100 for k in ("value", "low", "high")))
                                     for s in scores)])  # fmt: skip
    return markdown(["model", "clean", "l_inf 8/255", "l_2 128/255", "l_1 12", "union"], rows)


def selection_table(rows: list[dict[str, Any]], shown: str = "") -> str:
    """The ways to choose: mean over seeds, standard deviation in brackets; cells that end so."""
    ways = [way for way in WAYS if way in rows[0]]
    body = [
        [row["cell"], *(f"{np.mean(row[way]):.1f} ({np.std(row[way]):.1f})" for way in ways)]
        for row in rows
        if row["cell"].endswith(shown)
    ]
    means = [f"**{np.mean([np.mean(row[way]) for row in rows]):.1f}**" for way in ways]
    title = "mean" if len(body) == len(rows) else f"mean of all {len(rows)} cells"
    return markdown(["cell", *ways], [*body, [f"**{title}**", *means]])


def from_data(results: Path = HERE / "results") -> dict[str, str]:
    """The places of README.md that results/*.json fill."""
    found = {p.stem: json.loads(p.read_text(encoding="utf-8")) for p in results.glob("*.json")}
    return {
        f"choosing {label}": selection_table(parts["selection"], ":5")
        for label, parts in found.items()
        if "selection" in parts
    }


def judge_family(folder: Path, label: str, out: Path) -> None:
    """Findings, tables and figures of one family."""
    from figures import figures_of_shift, figures_of_soups

    names = ("members", "max", "sat", "control", "soups")
    read = {name: Looked.read(folder / name) for name in names}
    there = {name: part for name, part in read.items() if part is not None}
    joint = {name: there[name] for name in ("max", "sat") if name in there}
    found: dict[str, Any] = {}
    text = [f"# {label}", "", members_table({k: v for k, v in there.items() if k != "soups"})]
    if soups := there.get("soups"):
        found |= {
            "F1": smooth(soups), "F2": interior_beats_specialist(soups),
            "F3": joint_training(soups, joint), "F4": best_union(soups), "F5": extrapolation(soups),
        }  # fmt: skip
        figures_of_soups(soups, joint, out / "figures" / label)
    if "control" in there:
        found["F10"] = control(there["control"])
    if renewed := Looked.read(folder / "renewed"):
        found["F10 with statistics estimated anew"] = control(renewed)
    if (folder / "shift").is_dir():
        shifted = Shifted(folder)
        found |= {
            "F6": shifted.soups_beat_members(), "F7": shifted.labels(), "F8": shifted.severity(),
            "F9": shifted.single_against_ensemble(), "racing": shifted.racing(),
            "selection": shifted.selection(),
        }  # fmt: skip
        text += ["", selection_table(found["selection"])]
        figures_of_shift(shifted, out / "figures" / label)
    dumped = json.dumps(found, indent=1, default=lambda value: value.item())
    write_atomic(out / "results" / f"{label}.json", dumped + "\n")
    write_atomic(out / "results" / f"{label}.md", "\n".join(text) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path, nargs="?", help="what study.py saved")
    parser.add_argument("--family", default="quarter")
    parser.add_argument("--as", dest="label", help="what the written files are called")
    parser.add_argument("--out", type=Path, default=HERE)
    given = parser.parse_args()
    if given.data:
        judge_family(given.data / given.family, given.label or given.family, given.out)
    places = from_data(given.out / "results")
    if given.out == HERE:
        fill(HERE / "README.md", places)


if __name__ == "__main__":
    main()
