"""The tables of the page, from the CSV files beside it, by the rules of plan.md.

python studies/label_free/tables.py
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from stockpot.results.few_seeds import Drawn, over_draws
from stockpot.results.tables import fill, markdown, read_csv

sys.path.append(str(Path(__file__).parents[1]))
from trainings import COLUMNS, several, told

HERE = Path(__file__).parent
FILES = ("estimates", "labels", "trainings-estimates", "trainings-labels")
POOL = "cifar10"
"""The pool that has further trainings."""
STEPS = (0, 5, 10, 20, 30)
SEEDS = {"coda": 1, "coda, rate 1": 1, "active_testing": 20, "random": 20}
ESTIMATES = ("atc_confidence", "atc_entropy", "doc", "cot", "aline_s", "aline_d")
ORDERED = ("source", *ESTIMATES, "nuclear_norm")
Rows = Sequence[dict[str, Any]]
Floats = NDArray[np.float64]


class Mean(NamedTuple):
    """A mean over targets, all rows of a target together, with its interval."""

    value: float
    low: float
    high: float

    def shown(self, factor: float = 100, digits: int = 1, sign: str = "") -> str:
        """As text, in percent by default."""
        low, high = (f"{factor * end:{sign}.{digits}f}" for end in (self.low, self.high))
        return f"{factor * self.value:{sign}.{digits}f} [{low}, {high}]"

    def verdict(self, above: str, below: str) -> str:
        """What the interval decides."""
        return above if self.low > 0 else below if self.high < 0 else "undecided"


def from_data(
    estimates: Rows, labels: Rows, more_estimates: Rows, more_labels: Rows
) -> dict[str, str]:
    """All tables by their places."""
    return {
        "errors": errors(estimates),
        "order": order(estimates),
        "regret": regret(labels),
        "stated": stated(labels),
        "pools": pools(labels),
        "trainings": over_trainings(
            by_training(estimates, more_estimates), by_training(labels, more_labels)
        ),
    }


def drawn_over(rows: Rows, values: Sequence[float]) -> Drawn:
    """The mean of the rows, and in resamples of whole targets."""
    keys = [f"{row['pool']} {row['target']}" for row in rows]
    names, owners = np.unique(keys, return_inverse=True)
    sums = np.bincount(owners, weights=values, minlength=len(names))
    sizes = np.bincount(owners, minlength=len(names))
    drawn = _drawn(len(names))
    means = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    return Drawn(float(np.mean(values)), means)


def mean_over(rows: Rows, values: Sequence[float]) -> Mean:
    """The mean of the rows; intervals resample whole targets."""
    return Mean(*drawn_over(rows, values).interval())


@cache
def _drawn(count: int) -> NDArray[np.int64]:
    return np.random.default_rng(0).integers(0, count, (2000, count))


def errors(rows: Rows) -> str:
    """How far estimates are from the truth, and whether they beat the source's accuracy."""
    shown = []
    for pool in (*dict.fromkeys(row["pool"] for row in rows), "both"):
        own = [row for row in rows if pool in (row["pool"], "both")]
        for name in ("source", *ESTIMATES):
            wrong = [abs(row[name] - row["truth"]) for row in own]
            known = [abs(row["source"] - row["truth"]) for row in own]
            gain = mean_over(own, [a - b for a, b in zip(known, wrong, strict=True)])
            inside = "-"
            if name != "source":
                held = [row[f"{name}_low"] <= row["truth"] <= row[f"{name}_high"] for row in own]
                inside = f"{100 * float(np.mean(held)):.0f}"
            verdict = "-" if name == "source" else gain.verdict("helps", "harms")
            gained = "-" if name == "source" else gain.shown(sign="+")
            error = mean_over(own, wrong).shown()
            shown.append([pool, f"`{name}`", len(own), error, gained, inside, verdict])
    heads = ["pool", "estimate", "cells", "error, points", "less than `source`"]
    return markdown([*heads, "intervals that hold, %", "verdict"], shown)


def order(rows: Rows) -> str:
    """Spearman's correlation over the models of each target."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["pool"], row["target"]), []).append(row)
    shown = []
    for name in ORDERED:
        line: list[object] = [f"`{name}`"]
        for pool in (*dict.fromkeys(pool for pool, _ in groups), "both"):
            own = {key: part for key, part in groups.items() if pool in (key[0], "both")}
            found = [
                spearmanr([r[name] for r in part], [r["truth"] for r in part]).statistic
                for part in own.values()
            ]
            heads = [{"pool": a, "target": b} for a, b in own]
            line.append(mean_over(heads, np.nan_to_num(found)).shown(1, 2))
        shown.append(line)
    pools = dict.fromkeys(row["pool"] for row in rows)
    return markdown(["estimate", *(f"{pool}: correlation" for pool in pools), "both"], shown)


def regret(rows: Rows) -> str:
    """What is lost by the choice after so many labels, and whether chance would do as well."""
    shown = []
    for labels in STEPS:
        own = [row for row in rows if row["labels"] == labels]
        by_chance = _by_target(own, "random")
        for method in SEEDS:
            part = [row for row in own if row["method"] == method]
            lost = mean_over(part, [row["regret"] for row in part])
            near = mean_over(part, [row["near"] for row in part])
            saved, verdict = "-", "-"
            if method != "random":
                gain = [by_chance[_key(row)] - row["regret"] for row in part]
                found = mean_over(part, gain)
                saved, verdict = found.shown(sign="+"), found.verdict("fewer", "more")
            shown.append(
                [labels, f"`{method}`", lost.shown(), near.shown(digits=0), saved, verdict]
            )
    heads = ["labels", "asked by", "regret, points", "within a point of the best, %"]
    return markdown([*heads, "less regret than `random`", "labels needed"], shown)


def pools(rows: Rows) -> str:
    """What `coda` loses by its choice, beside labels at random, pool by pool."""
    shown = []
    for pool in dict.fromkeys(row["pool"] for row in rows):
        for labels in STEPS:
            own = [row for row in rows if (row["pool"], row["labels"]) == (pool, labels)]
            part = {name: [row for row in own if row["method"] == name] for name in SEEDS}
            lost = [mean_over(part[name], [row["regret"] for row in part[name]])
                    for name in ("coda", "random")]  # fmt: skip
            saved = Mean(*_saved(own, "coda", labels).interval())
            shown.append([pool, labels, *(each.shown() for each in lost), saved.shown(sign="+")])
    heads = ["pool", "labels", "regret of `coda`", "of `random`"]
    return markdown([*heads, "less regret than `random`"], shown)


def stated(rows: Rows) -> str:
    """Whether a stated probability is worth its name, at the most labels."""
    shown = []
    for method in SEEDS:
        part = [row for row in rows if row["method"] == method and row["labels"] == max(STEPS)]
        said = mean_over(part, [row["stated"] for row in part])
        near = mean_over(part, [row["near"] for row in part])
        gap = mean_over(part, [row["near"] - row["stated"] for row in part])
        verdict = "believable" if gap.high >= 0 else "too sure"
        shown.append(
            [f"`{method}`", said.shown(), near.shown(digits=0), gap.shown(sign="+"), verdict]
        )
    return markdown(
        ["asked by", "stated, %", "within a point of the best, %", "difference", "verdict"], shown
    )


def by_training(zoo: Rows, more: Rows) -> list[Rows]:
    """The rows of each training, the zoo's first."""
    numbers = sorted({row["training"] for row in more})
    own = [row for row in zoo if row["pool"] == POOL]
    return [own, *([row for row in more if row["training"] == n] for n in numbers)]


def over_trainings(estimates: Sequence[Rows], labels: Sequence[Rows]) -> str:
    """What was judged again of one pool, by the rule that was added to the plan."""
    lines = []

    def add(what: str, name: str, runs: Sequence[Drawn], words: dict[str, str]) -> None:
        found = over_draws(runs)
        points, single, *rest = told(found, words.get(found.said(), "undecided"))
        targets = len({row["target"] for row in estimates[0]})
        lines.append((what, f"`{name}`", points, single, targets, *rest))

    for name in ESTIMATES:
        helps = {"held": "helps", "did not hold": "harms"}
        add("error, less than `source`", name, [_gain(rows, name) for rows in estimates], helps)
    for count in STEPS:
        for method in SEEDS:
            # Before the first label only `coda` knows anything.
            if method != "random" and (count > 0 or method == "coda"):
                runs = [_saved(rows, method, count) for rows in labels]
                needed = {"held": "fewer", "did not hold": "more"}
                add(f"regret, less than `random`, {count} labels", method, runs, needed)
    for method in SEEDS:
        runs = [_credit(rows, method) for rows in labels]
        sure = {"did not hold": "too sure"} | dict.fromkeys(
            ("held", "not told apart"), "believable"
        )
        add("share within a point of the best, less the stated one", method, runs, sure)
    first, single, *rest = COLUMNS
    table = markdown(("judged", "of", first, single, "targets", *rest), lines)
    return several(len(estimates), table)


def _gain(rows: Rows, name: str) -> Drawn:
    found = [abs(row["source"] - row["truth"]) - abs(row[name] - row["truth"]) for row in rows]
    return drawn_over(rows, found)


def _saved(rows: Rows, method: str, labels: int) -> Drawn:
    own = [row for row in rows if row["labels"] == labels]
    by_chance, part = _by_target(own, "random"), [r for r in own if r["method"] == method]
    return drawn_over(part, [by_chance[_key(row)] - row["regret"] for row in part])


def _credit(rows: Rows, method: str) -> Drawn:
    own = [row for row in rows if row["method"] == method and row["labels"] == max(STEPS)]
    return drawn_over(own, [row["near"] - row["stated"] for row in own])


def _key(row: dict[str, Any]) -> tuple[str, str]:
    return row["pool"], row["target"]


def _by_target(rows: Rows, method: str) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row["method"] == method:
            found.setdefault(_key(row), []).append(row["regret"])
    return {key: float(np.mean(values)) for key, values in found.items()}


if __name__ == "__main__":
    fill(HERE / "README.md", from_data(*(read_csv(HERE / f"{name}.csv") for name in FILES)))
