"""Does each finding of "Seasoning Model Soups" hold here? From what `study.py` saved to the tables.

    python studies/robust_soups/tables.py runs/study --family quarter

Writes results/LABEL.json and results/LABEL.md and the figures, and puts the tables of choosing
into README.md. Where a soup (or a member, or the worst of a line) is chosen and then compared, half
of the images choose and the other half compare: no winner's curse. Whether a finding held is a rule
on intervals (`stockpot.results.contrast`); those of several cells count an image once.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import claims
import numpy as np
from study import CORRUPTIONS, CRITERIA, SOUPED

from stockpot.files import write_atomic
from stockpot.results.contrast import (
    Claim,
    Contrast,
    Verdict,
    choose_then_judge,
    every_exceed,
    halves,
    paired,
    some_exceed,
    verdict,
)
from stockpot.results.statistics import share_interval
from stockpot.results.tables import fill, markdown, percent
from stockpot.season.conditions import Conditions
from stockpot.season.matrix import single_soup
from stockpot.season.methods.racing import race
from stockpot.season.plots.labels_needed import SHOTS, curve

HERE = Path(__file__).parent
THREATS = ("linf 8/255", "l2 128/255", "l1 12")
ALL = ("clean", *THREATS, "union")
OWN = dict(zip(SOUPED, (*THREATS, "clean"), strict=True))
"""What each member was trained for."""
WAYS = ("best member", "ensemble", "source", *CRITERIA, "10-shot", "100-shot", "oracle")
Finding = dict[str, Any]


def points(found: Contrast, n: int) -> dict[str, float]:
    """A share or a difference in percent or points, as JSON keeps it."""
    return {key: 100 * value for key, value in found._asdict().items()} | {"n": n}


def share(flags: np.ndarray, groups: np.ndarray | None = None) -> dict[str, float]:
    interval = share_interval(flags, groups)
    return points(Contrast(float(flags.mean()), interval.low, interval.high), flags.size)


def gain(first: np.ndarray, second: np.ndarray) -> dict[str, float]:
    return points(paired(first, second), first.size)


def told(found: Claim | Verdict) -> dict[str, Any]:
    """A verdict, and for several differences their intervals of 95 % together, in points."""
    if isinstance(found, str):
        return {"verdict": found}
    return {"verdict": found.verdict, "together": [points(part, 0) for part in found.parts]}


def mixture(soups: Conditions, row: int) -> str:
    """A soup in words."""
    named = zip(soups.facts["members"], soups.weights[row], strict=True)
    return " + ".join(f"{w:g} {m}" for m, w in named if abs(w) > 1e-9).replace("+ -", "- ")


def called(pair: tuple[int, int]) -> str:
    return "-".join(SOUPED[member] for member in pair)


def on_triangle(soups: Conditions) -> list[int]:
    """Convex soups of the three robust members, by fifths."""
    fifths = 5 * soups.weights
    whole = np.abs(fifths - fifths.round()).max(axis=1) < 1e-5
    convex = (fifths > -1e-8).all(axis=1) & (np.abs(fifths[:, 3]) < 1e-8)
    return [int(row) for row in np.flatnonzero(whole & convex)]


def dips(correct: np.ndarray) -> Any:
    """The lowest interior point of a line against its lower end: chosen on one half of the images.

    The gain is the end's; its pair is turned round by `below`.
    """
    wrong = ~correct
    return choose_then_judge(wrong[1:-1], wrong[[0, -1]])


def below(found: Any) -> Any:
    """The pair of a dip as right answers: the interior point, and the end."""
    pair = found.held_out
    return pair._replace(first=1 - pair.first, second=1 - pair.second)


def smooth(soups: Conditions) -> Finding:
    """F1: along a line no interior soup falls below the worse end, by two points or more."""
    rows, pairs = [], []
    for pair in ((0, 1), (0, 2), (1, 2)):
        for threat in (OWN[SOUPED[member]] for member in pair):
            correct = soups.matrices[threat].correct[soups.line(*pair)]
            found = dips(correct)
            scores = 100 * correct.mean(axis=1)
            steps = np.diff(scores) * (1 if scores[-1] > scores[0] else -1)
            pairs.append(below(found))
            rows.append({"pair": called(pair), "threat": threat,
                         "lowest interior minus lower end":
                         gain(pairs[-1].first, pairs[-1].second),
                         "largest step against the trend": max(0.0, -steps.min())})  # fmt: skip
    return told(every_exceed(pairs, -0.02)) | {"rows": rows}


def interior_beats_specialist(soups: Conditions) -> Finding:
    """F2: for neighbouring norms some interior soup beats the specialist at its own threat."""
    rows, pairs = [], []
    for pair in ((1, 0), (1, 2), (0, 1), (2, 1)):
        correct = soups.matrices[OWN[SOUPED[pair[0]]]].correct
        alone, *inner, _ = soups.line(*pair)
        found = choose_then_judge(correct[inner], correct[alone])
        pairs.append(found.held_out)
        rows.append({"specialist": SOUPED[pair[0]], "soup": mixture(soups, inner[found.best]),
                     "gain over the specialist": points(found.gain, found.n)})  # fmt: skip
    return told(some_exceed(pairs)) | {"rows": rows}


def joint_training(soups: Conditions, joint: dict[str, Conditions]) -> Finding:
    """F3: MAX and SAT on (l_inf, l_1) lie above the soups' front."""
    pair = [soups.matrices[THREATS[index]].correct[soups.line(0, 2)] for index in (0, 2)]
    both = np.logical_and(*pair)
    linf, l1 = (correct.mean(axis=1) for correct in pair)
    order = np.argsort(linf)
    rows, pairs = [], []
    for name, model in joint.items():
        own = [model.matrices[THREATS[index]].correct[0] for index in (0, 2)]
        # The l_1 accuracy of the front at the same l_inf accuracy, by linear interpolation.
        front = float(np.interp(own[0].mean(), linf[order], l1[order]))
        found = choose_then_judge(np.logical_and(*own)[None], both)
        pairs.append(found.held_out)
        rows.append(
            {"model": name, "linf": share(own[0]), "l1": share(own[1]),
             "l1 above the front (points)": 100 * (float(own[1].mean()) - front),
             "union(linf, l1) minus the best soup's": points(found.gain, found.n)}
        )  # fmt: skip
    return told(every_exceed(pairs)) | {"rows": rows}


def best_union(soups: Conditions) -> Finding:
    """F4: the best soup under the union uses only the l_inf and l_1 members."""
    union = soups.matrices["union"]
    inside = on_triangle(soups)
    without = [row for row in inside if abs(soups.weights[row][1]) < 1e-9]
    others = [row for row in inside if row not in without]
    members = [soups.line(m, (m + 1) % 3)[0] for m in range(3)]
    found = choose_then_judge(union.correct[without], union.correct[others])
    over = choose_then_judge(union.correct[inside], union.correct[members])
    top = [row for row in union.top(len(union.weights)) if row in inside][:5]
    rows = [{"soup": mixture(soups, row), "union": share(union.correct[row])} for row in top]
    return told(found.gain.verdict) | {
        "rows": rows, "best without l_2 minus best with it": points(found.gain, found.n),
        "without": mixture(soups, without[found.best]), "with": mixture(soups, others[found.other]),
        "best minus best member": points(over.gain, over.n),
    }  # fmt: skip


def extrapolation(soups: Conditions) -> Finding:
    """F5: some weight outside [0, 1] is better for some score."""
    rows, pairs = [], []
    for pair in ((0, 1), (0, 2), (1, 2), (0, 3)):
        inside = soups.line(*pair)
        outside = [row for row in soups.line(*pair, -0.4, 1.4) if row not in inside]
        for condition in ALL if outside else ():
            correct = soups.matrices[condition].correct
            found = choose_then_judge(correct[outside], correct[inside])
            pairs.append(found.held_out)
            rows.append(
                {"pair": called(pair), "score": condition,
                 "outside": mixture(soups, outside[found.best]),
                 "inside": mixture(soups, inside[found.other]),
                 "outside minus inside": points(found.gain, found.n)}
            )  # fmt: skip
    return told(some_exceed(pairs)) | {"rows": rows}


def control(line: Conditions) -> Finding:
    """F10: independently trained members do not mix: a barrier of more than ten points."""
    found = dips(line.matrices["clean"].correct)
    rows = [
        {"weight of the other": float(weights[1])}
        | {name: share(matrix.correct[row]) for name, matrix in line.matrices.items()}
        for row, weights in enumerate(line.weights)
    ]
    barrier = found.gain
    return told(verdict(barrier.low, barrier.high, 0.1)) | {
        "barrier in clean accuracy (points)": points(barrier, found.n), "rows": rows,
    }  # fmt: skip


class Shifted:
    """Soups on corrupted images, the members alone, and their output ensemble."""

    def __init__(self, folder: Path) -> None:
        self.soups, self.alone, self.ensemble = (
            Conditions.read(folder / name) for name in ("shift", "alone", "ensemble")
        )
        self.cells = {n: m for n, m in self.soups.matrices.items() if ":" in n}
        self.n = next(iter(self.cells.values())).correct.shape[1]

    def soups_beat_members(self) -> Finding:
        """F6: the best soup beats every member on shifted sets, but not on the clean one."""
        chosen, judged = halves(self.n)
        rows, answers = [], []
        for name in ("clean", *self.cells):
            matrix, alone = self.soups.matrices[name], self.alone.matrices[name].correct
            best = matrix.best(chosen)
            member = int(alone[:, chosen].mean(axis=1).argmax())
            right = matrix.correct[best, judged]
            answers.append((right, alone[member, judged]))
            rows.append(
                {"cell": name, "soup": mixture(self.soups, best), "soup accuracy": share(right),
                 "best member": SOUPED[member],
                 "soup minus member": gain(right, alone[member, judged])}
            )  # fmt: skip
        clean, *gains = (row["soup minus member"] for row in rows)
        # The same images stand in every cell: each counts once, with its mean over the cells.
        mean = paired(*(np.mean(side, axis=0) for side in zip(*answers[1:], strict=True)))
        return told(mean.verdict) | {
            "clean gain": clean, "cells": len(gains),
            "cells with a gain": sum(found["value"] > 0 for found in gains),
            "cells with a gain beyond its interval": sum(found["low"] > 0 for found in gains),
            "cells with a loss beyond its interval": sum(found["high"] < 0 for found in gains),
            "mean gain": points(mean, len(judged)), "rows": rows,
        }  # fmt: skip

    def numbers_of_labels(self) -> list[int]:
        """The usual numbers that leave half of the images to score on, and that half itself."""
        return sorted({k for k in SHOTS if k <= self.n // 2} | {self.n // 2})

    def labels(self, draws: int = 50) -> Finding:
        """F7: about a hundred labels choose nearly as well as five hundred."""
        shots = self.numbers_of_labels()
        found = [curve(matrix, self.n // 2, shots, draws) for matrix in self.cells.values()]
        mean, spread = 100 * np.mean(found, axis=0)
        return {"shots": shots, "mean": dict(zip(shots, mean, strict=True)),
                "sd": dict(zip(shots, spread, strict=True))}  # fmt: skip

    def severity(self) -> Finding:
        """F8: the nominal member's weight falls as severity rises; who is favoured instead."""
        tops = {name: m.weights[m.top(5)].mean(axis=0) for name, m in self.cells.items()}
        levels = sorted({name.rpartition(":")[2] for name in tops})
        mean = {x: np.mean([top[3] for n, top in tops.items() if n.endswith(f":{x}")])
                for x in levels}  # fmt: skip
        falls = {c: [top[3] for n, top in tops.items() if n.startswith(f"{c}:")]
                 for c in CORRUPTIONS}  # fmt: skip
        rows = [{"cell": name} | dict(zip(SOUPED, top, strict=True)) for name, top in tops.items()]
        return {"nominal weight by severity": mean, "by corruption": falls, "rows": rows}

    def single_against_ensemble(self) -> Finding:
        """F9: one soup for all cells against the four members' output ensemble, at a quarter."""
        chosen, judged = halves(self.n)
        cells = list(self.cells.values())
        single = single_soup(cells, [chosen] * len(cells))
        soup = np.stack([cell.correct[single, judged] for cell in cells])
        own = np.stack([cell.correct[cell.best(chosen), judged] for cell in cells])
        outputs = np.stack([self.ensemble.matrices[n].correct[0, judged] for n in self.cells])
        members = np.stack([self.alone.matrices[name].correct for name in self.cells], axis=1)
        member = int(members[:, :, chosen].mean(axis=(1, 2)).argmax())
        # The same images stand in every cell.
        images = np.tile(judged, len(cells))
        difference = paired(soup.ravel(), outputs.ravel(), groups=images)
        # The finding is that the soup is below.
        return told(verdict(-difference.high, -difference.low)) | {
            "single soup": mixture(self.soups, single), "single": share(soup.ravel(), images),
            "ensemble": share(outputs.ravel(), images),
            "soup of each cell": share(own.ravel(), images),
            "best single member": share(members[member][:, judged].ravel(), images),
            "single minus ensemble": points(difference, soup.size),
        }  # fmt: skip

    def selection(self, seeds: int = 3) -> list[dict[str, Any]]:
        """Soups chosen without labels, with few and with all, scored on held-out images."""
        free = {(item["cell"], item["seed"], item["criterion"]): item["soup"]
                for item in self.soups.facts["label_free"]}  # fmt: skip
        rows = []
        for name, matrix in self.cells.items():
            found: dict[str, list[float]] = {}
            for seed in range(seeds):
                chosen, judged = halves(self.n, seed)
                order = np.random.default_rng([8, seed]).permutation(chosen)
                soups = {"source": self.soups.matrices["source"].best(),
                         "10-shot": matrix.best(order[:10]), "100-shot": matrix.best(order[:100]),
                         "oracle": matrix.best(judged)}  # fmt: skip
                soups |= {c: free[name, seed, c] for c in CRITERIA if (name, seed, c) in free}
                scores = {way: matrix.correct[soup, judged].mean() for way, soup in soups.items()}
                alone = self.alone.matrices[name]
                member = int(alone.accuracy(chosen).argmax())
                scores["best member"] = alone.correct[member, judged].mean()
                scores["ensemble"] = self.ensemble.matrices[name].accuracy(judged)[0]
                for way, score in scores.items():
                    found.setdefault(way, []).append(100 * float(score))
            rows.append({"cell": name, "held out": len(judged)} | found)
        return rows

    def racing(self, draws: int = 20, first: float = 0.03, keep: float = 0.25) -> Finding:
        """Racing against the whole grid: its share of the cost, and what it loses."""
        gaps, costs = [], []
        for matrix in self.cells.values():

            def judge(alive: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
                part = np.ix_(alive, rows)
                return matrix.correct[part].sum(axis=1), matrix.loss[part].sum(axis=1)  # noqa: B023

            for seed in range(draws):
                order = np.random.default_rng(seed).permutation(self.n)
                seen, score = order[: self.n // 2], matrix.accuracy(order[self.n // 2 :])
                result = race(matrix.weights, seen, judge, first=first, keep=keep)
                gaps.append(100 * (score[matrix.best(seen)] - score[result.winner]))
                costs.append(100 * result.images / (len(matrix.weights) * len(seen)))
        return {"draws": len(gaps), "mean gap (points)": np.mean(gaps), "sd": np.std(gaps),
                "share of the grid (%)": np.mean(costs)}  # fmt: skip


def members_table(parts: list[Conditions]) -> str:
    """Clean and robust accuracy of every member."""
    body = []
    for part in parts:
        for row in np.flatnonzero(part.weights.max(axis=1) > 1 - 1e-9):
            found = [share(part.matrices[name].correct[row]) for name in ALL]
            scores = [percent(*(s[k] / 100 for k in ("value", "low", "high"))) for s in found]
            body.append([part.facts["members"][part.weights[row].argmax()], *scores])
    return markdown(["model", "clean", "l_inf 8/255", "l_2 128/255", "l_1 12", "union"], body)


def selection_table(rows: list[dict[str, Any]], shown: str = "") -> str:
    """Mean over seeds, standard deviation in brackets, of the cells whose names end so."""
    ways = [way for way in WAYS if way in rows[0]]
    body = [
        [row["cell"], *(f"{np.mean(row[way]):.1f} ({np.std(row[way]):.1f})" for way in ways)]
        for row in rows
        if row["cell"].endswith(shown)
    ]
    means = [f"**{np.mean([np.mean(row[way]) for row in rows]):.1f}**" for way in ways]
    title = "mean" if len(body) == len(rows) else f"mean of all {len(rows)} cells"
    return markdown(["cell", *ways], [*body, [f"**{title}**", *means]])


def from_data() -> dict[str, str]:
    """The places of README.md that results/*.json and claims.json fill."""
    files = sorted((HERE / "results").glob("*.json"))
    found = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}
    choosing = {f"choosing {n}": selection_table(f["selection"], ":5") for n, f in found.items()}
    return claims.from_data() | choosing


def judge_family(folder: Path, label: str, out: Path) -> None:
    """Findings, tables and figures of one family."""
    from figures import figures_of_shift, figures_of_soups

    names = ("members", "max", "sat", "control", "soups", "renewed")
    read = {name: Conditions.read(folder / name) for name in names}
    there = {name: part for name, part in read.items() if part is not None}
    joint = {name: there[name] for name in ("max", "sat") if name in there}
    found: dict[str, Any] = {}
    text = [f"# {label}", "", members_table([there[name] for name in names[:4] if name in there])]
    if soups := there.get("soups"):
        found = {"F1": smooth(soups), "F2": interior_beats_specialist(soups),
                 "F3": joint_training(soups, joint), "F4": best_union(soups),
                 "F5": extrapolation(soups)}  # fmt: skip
        figures_of_soups(soups, joint, out / "figures" / label)
    for name, part in (("F10", "control"), ("F10 with statistics estimated anew", "renewed")):
        if part in there:
            found[name] = control(there[part])
    if (folder / "shift").is_dir():
        shifted = Shifted(folder)
        found |= {"F6": shifted.soups_beat_members(), "F7": shifted.labels(),
                  "F8": shifted.severity(), "F9": shifted.single_against_ensemble(),
                  "racing": shifted.racing(), "selection": shifted.selection()}  # fmt: skip
        text += ["", selection_table(found["selection"])]
        figures_of_shift(shifted, out / "figures" / label)
    dumped = json.dumps(found, indent=1, default=lambda value: value.item())
    write_atomic(out / "results" / f"{label}.json", dumped + "\n")
    write_atomic(out / "results" / f"{label}.md", "\n".join(text) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path, help="what study.py saved")
    parser.add_argument("--family", default="quarter")
    parser.add_argument("--as", dest="label", help="what the written files are called")
    parser.add_argument("--out", type=Path, default=HERE)
    given = parser.parse_args()
    judge_family(given.data / given.family, given.label or given.family, given.out)
    if given.out == HERE:
        fill(HERE / "README.md", from_data())


if __name__ == "__main__":
    main()
