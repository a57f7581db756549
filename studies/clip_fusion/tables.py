"""Tables and figures of the CLIP fusion study, from the runs that `study.py` left.

    python studies/clip_fusion/tables.py runs
    python studies/clip_fusion/tables.py runs tuned      # only those of `tuned.py`
    python studies/clip_fusion/tables.py                 # from the CSV files that lie here

Writes CSV files beside this file, puts the tables into README.md and draws the figures from the
CSV files, which are rounded and leave the last digit of a table open.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import again
from searched import tuned_tables
from study import BASES, EXPERT_OF, RATES
from tuned import leader_rows, tuned_rows
from untuned import Fused, corruption_rows, entropy, fusion, order, robustness

from stockpot.files import write_atomic
from stockpot.results.schema import Score
from stockpot.results.score_tables import mean_score, score_rows, table_of_rows, task_tables
from stockpot.results.store import load_results
from stockpot.results.tables import csv_text, fill, markdown, percent, percents, read_csv

HERE = Path(__file__).parent
FILES = ("pools", "fusion", "gains", "calibration", "generalisation", "robustness", "corrupted",
         "tuned", "leaders")  # fmt: skip
Row = dict[str, Any]


def plain(score: Score | None) -> str:
    return percents(score, interval=False)


def from_data(files: Mapping[str, list[Row]]) -> dict[str, str]:
    """The places of README.md that follow from the CSV files."""
    return {
        "tested": tested(files["fusion"], files["leaders"]),
        "pool": pool(files["fusion"]),
        "pools": pools(files["pools"]),
        "sweep": sweep(files["fusion"]),
        "generalisation": generalisation(files["generalisation"]),
        "severities": severities(files["robustness"]),
        "fusion": fusion(files["fusion"], files["gains"]),
        "order": order(files["gains"]),
        "entropy": entropy(files["calibration"]),
        "robustness": robustness(files["robustness"], files["corrupted"]),
        **tuned_tables(files["tuned"], files["leaders"]),
    }


def tested(fused: Sequence[Row], best: Sequence[Row]) -> str:
    """Which run saw how many test images."""
    tasks = {row["task"]: round(row["n"]) for row in fused}
    each = ", ".join(f"{n:,} of {task}" for task, n in tasks.items())
    told = f"Published settings, scales, unseen tasks and corruptions: {sum(tasks.values()):,} "
    told += f"test images, {each}."
    for row in best[:1]:
        last = round(row["images"]) - sum(n for task, n in tasks.items() if task != "icons")
        told += f" The choice of all after tuning: {row['images']:,.0f}, of icons {last:,}."
    return told


def pool(rows: Sequence[Row]) -> str:
    """The base beside each expert on its own task."""
    ends = ("accuracy", "ci_low", "ci_high")
    at = {(row["model"], row["task"]): [row[key] for key in ends] for row in rows}
    pairs = {task: (at["clip-base", task], at[own, task]) for task, own in EXPERT_OF.items()}
    body = [[task, *(percent(*one) for one in pair)] for task, pair in pairs.items()]
    means = [percent(_mean(pair[side][0] for pair in pairs.values())) for side in (0, 1)]
    return markdown(["task", "base", "its expert"], [*body, ["mean", *means]])


def pools(rows: Sequence[Row]) -> str:
    """The candidate pools on validation images, the largest share first.

    The rule was fixed before the first run: among the pools in which every expert is at least three
    points above its base, the one whose best simple fusion makes up the largest share of what the
    experts gain in the mean.
    """
    found = {(row["pool"], row["model"], row["task"]): row["accuracy"] for row in rows}
    simple = list(dict.fromkeys(r["model"] for r in rows if not r["model"].startswith("clip-")))
    body = []
    for pool in dict.fromkeys(row["pool"] for row in rows):
        base = [found[pool, "clip-base", task] for task in EXPERT_OF]
        own = [found[pool, expert, task] for task, expert in EXPERT_OF.items()]
        means = {name: _mean(found[pool, name, task] for task in EXPERT_OF) for name in simple}
        best = max(means, key=means.__getitem__)
        start, goal = _mean(base), _mean(own)
        pairs = [f"{100 * a:.0f} / {100 * b:.0f}" for a, b in zip(base, own, strict=True)]
        least = min(b - a for a, b in zip(base, own, strict=True))
        body.append(
            [pool, *pairs, f"{percent(start)} / {percent(goal)}", percent(least),
             f"{best}: {percent(means[best])}", f"{(means[best] - start) / (goal - start):.2f}"]
        )  # fmt: skip
    body.sort(key=lambda row: row[-1], reverse=True)
    head = ["pool", *EXPERT_OF, "mean", "smallest gain", "best simple fusion", "share"]
    return markdown(head, body)


def sweep(rows: Sequence[Row]) -> str:
    """Task arithmetic by its scale."""
    table = table_of_rows(row for row in rows if "scale=" in row["model"])
    body = [[row.model.partition("=")[2], *map(plain, row.scores), percents(row.mean)]
            for row in table.rows]  # fmt: skip
    return markdown(["scale", *table.tasks, "mean [95 %]"], sorted(body))


def generalisation(rows: Sequence[Row]) -> str:
    """Tasks whose experts were fused, and others."""
    table = table_of_rows(rows)
    seen = [task.startswith("seen") for task in table.tasks]
    body = []
    for row in table.rows:
        groups = [[s for s, own in zip(row.scores, seen, strict=True) if own == side]
                  for side in (True, False)]  # fmt: skip
        body.append([row.model, *map(plain, row.scores), *map(percents, map(mean_score, groups))])
    return markdown(["method", *table.tasks, "seen", "unseen"], body)


def graded(rows: Sequence[Row]) -> tuple[list[int], dict[str, list[float]]]:
    """The severities, and each model's mean over corruptions at each."""
    levels = sorted({int(row["task"].rpartition(" ")[2]) for row in rows})
    models = dict.fromkeys(row["model"] for row in rows)
    return levels, {
        name: [_mean(r["accuracy"] for r in rows if r["model"] == name
                     and r["task"].endswith(f" {level}")) for level in levels]
        for name in models
    }  # fmt: skip


def severities(rows: Sequence[Row]) -> str:
    levels, means = graded(rows)
    body = [[name, *map(percent, values)] for name, values in means.items()]
    return markdown(["method", *(f"severity {level}" for level in levels)], body)


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def pool_rows(runs: Path) -> list[Row]:
    """The accuracies of all candidates; an entry's name ends with the rate of its experts."""
    rows = []
    for base in (base for base in BASES if (runs / base / "results").is_dir()):
        for cell, rate in itertools.product(load_results(runs / base), RATES):
            model = cell.key.model.removesuffix(f"@{rate}")
            if model != cell.key.model or model == "clip-base":
                task, score = cell.key.data.removesuffix("-val"), cell.score("accuracy")
                rows.append({"pool": f"{base}-{rate}", "model": model.replace("@", " "),
                             "task": task, "accuracy": score.value, "n": score.n})  # fmt: skip
    return rows


def main() -> None:
    from figures import draw

    if sys.argv[2:] not in ([], ["tuned"]):
        sys.exit("usage: python studies/clip_fusion/tables.py [RUNS [tuned]]")
    if sys.argv[1:]:
        runs = Path(sys.argv[1])
        files = {"tuned": tuned_rows(runs), "leaders": leader_rows(runs)}
        if not sys.argv[2:]:
            files |= untuned_rows(runs)
        for name, rows in files.items():
            write_atomic(HERE / f"{name}.csv", csv_text(rows))
    files = {name: read_csv(HERE / f"{name}.csv") for name in FILES}
    fill(HERE / "README.md", from_data(files) | again.from_data())
    draw()


def untuned_rows(runs: Path) -> dict[str, list[Row]]:
    """The rows of the CSV files that tell of the published settings."""
    fused = Fused(runs)
    seen = next(found for found in task_tables(load_results(runs / "clip_generalisation"))
                if found.measure == "clean")  # fmt: skip
    conditions, corrupted = corruption_rows(load_results(runs / "clip_robustness"))
    found = {
        "fusion": score_rows(fused.table.tasks, fused.rows),
        "gains": fused.gains(),
        "calibration": fused.calibration(),
        "generalisation": score_rows(seen.tasks, seen.rows),
        "robustness": conditions,
        "corrupted": corrupted,
    }
    candidates = pool_rows(runs / "clip_pools")
    return found | {"pools": candidates} if candidates else found


if __name__ == "__main__":
    main()
