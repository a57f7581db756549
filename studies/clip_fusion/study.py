"""Tables and figures of the CLIP fusion study, from the result files of three recipes.

    stockpot run recipes/clip_fusion.yaml
    stockpot run recipes/clip_generalisation.yaml
    stockpot run recipes/clip_robustness.yaml
    python studies/clip_fusion/study.py runs

Writes CSV files and figures beside this file, and puts the tables between
the marks of README.md. `--switched` makes EMR and TALL masks, which give a model per task, and
measures each on its own task (`--switched --images N` on N images); the tables then have them.
"""

from __future__ import annotations

import csv
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

from stockpot.charts import Mark, Spot, lines, save, whiskers
from stockpot.results.contrast import Contrast, mean_contrast, paired
from stockpot.results.schema import CellResult, Score
from stockpot.results.score_tables import TaskRow, corruption_means, mean_score, task_tables
from stockpot.results.store import load_results
from stockpot.results.tables import fill, markdown, percents

HERE = Path(__file__).parent
EXPERT_OF = {
    "cifar10": "clip-cifar10",
    "mnist": "clip-mnist",
    "fashion_mnist": "clip-fashion",
    "quickdraw": "clip-quickdraw",
    "icons": "clip-icons",
}


def write_csv(name: str, columns: Sequence[str], rows: Sequence[TaskRow]) -> None:
    with (HERE / name).open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["model", "task", "accuracy", "ci_low", "ci_high", "n"])
        for row in rows:
            for task, score in zip(columns, row.scores, strict=True):
                if score is not None:
                    values = [score.value, score.ci_low, score.ci_high]
                    numbers = [f"{value:.4f}" for value in values if value is not None]
                    writer.writerow([row.model, task, *numbers, score.n])


def plain(score: Score | None) -> str:
    return percents(score, interval=False)


def put(name: str, text: str) -> None:
    """Replace what stands between the marks of a name in README.md."""
    fill(HERE / "README.md", {name: text})


def experts_row(rows: Sequence[TaskRow], tasks: Sequence[str]) -> TaskRow:
    """Each task by its own expert: what a perfect fusion would reach."""
    by_model = {row.model: row for row in rows}
    own = [by_model.get(EXPERT_OF[task]) for task in tasks]
    scores = [row.scores[index] if row else None for index, row in enumerate(own)]
    return TaskRow("each expert on its own task", scores, mean_score(scores))


def fusion(results: list[CellResult], extra: Sequence[TaskRow]) -> None:
    table = next(found for found in task_tables(results) if found.measure == "clean")
    swept = [row for row in table.rows if "scale=" in row.model and row.mean is not None]
    rows = [row for row in table.rows if row not in swept or row.model.endswith("scale=0.3")]
    rows += [experts_row(table.rows, table.tasks), *extra]
    rows = [row for row in rows if row.mean is not None]  # a run may still be under way
    rows.sort(key=lambda row: row.mean.value if row.mean else 0.0)
    write_csv("fusion.csv", table.tasks, [*rows, *(r for r in swept if r not in rows)])
    found = by_model(results)
    body = []
    for row in rows:
        name = "experts" if row.model.startswith("each expert") else row.model
        over = gain(found, "clip-base", name) if name != "clip-base" else None
        shown_name = row.model.replace("-scale=0.3", " (scale 0.3)")
        body.append(
            [
                shown_name,
                *map(plain, row.scores),
                percents(row.mean),
                str(over or ""),
            ]
        )
    put("fusion", markdown(["method", *table.tasks, "mean [95 %]", "over the base [95 %]"], body))
    line = [
        [
            row.model.partition("=")[2],
            *map(plain, row.scores),
            percents(row.mean),
        ]
        for row in swept
    ]
    put("sweep", markdown(["scale", *table.tasks, "mean [95 %]"], line))
    draw_means(rows, "fusion.svg", "Mean accuracy over five tasks (%)")
    draw_sweep(swept, table.tasks)


def generalisation(results: list[CellResult]) -> None:
    table = next(found for found in task_tables(results) if found.measure == "clean")
    write_csv("generalisation.csv", table.tasks, table.rows)
    body = []
    for row in (row for row in table.rows if row.mean is not None):
        by_task = dict(zip(table.tasks, row.scores, strict=True))
        groups = [
            mean_score([by_task[t] for t in table.tasks if t.startswith(word)])
            for word in ("seen", "unseen")
        ]
        body.append([row.model, *map(plain, row.scores), *map(percents, groups)])
    put("generalisation", markdown(["method", *table.tasks, "seen", "unseen"], body))


def robustness(results: list[CellResult]) -> None:
    means = corruption_means(results)
    if means is None:
        raise SystemExit("the robustness run has no corruption results")
    columns = [f"{name} {severity}" for name, severity in means.conditions]
    write_csv("robustness.csv", columns, means.rows)
    names = list(dict.fromkeys(name for name, _ in means.conditions))
    severities = sorted({severity for _, severity in means.conditions})
    overall = next(found for found in task_tables(results) if found.measure == "corruption")
    clean: dict[str, list[Score | None]] = {cell.key.model: [] for cell in results}
    for cell in results:
        clean[cell.key.model].append(cell.score("accuracy"))
    body = []
    complete = [row for row in means.rows if all(score is not None for score in row.scores)]
    for row in complete:
        found = dict(zip(means.conditions, row.scores, strict=True))
        by_name = [_mean([found[name, severity] for severity in severities]) for name in names]
        total = next(entry.mean for entry in overall.rows if entry.model == row.model)
        body.append([row.model, percents(mean_score(clean[row.model])), *by_name, percents(total)])
    put("robustness", markdown(["method", "clean", *names, "mean without spatter [95 %]"], body))
    graded = []
    for row in complete:
        found = dict(zip(means.conditions, row.scores, strict=True))
        graded.append(
            [row.model, *(_mean([found[name, level] for name in names]) for level in severities)]
        )
    put("severities", markdown(["method", *(f"severity {s}" for s in severities)], graded))
    starts = {model: mean_score(scores) for model, scores in clean.items()}
    draw_severities(graded, starts, severities)


def by_model(results: list[CellResult]) -> dict[tuple[str, str], CellResult]:
    """(model, task) -> its result; `experts` takes each task's own expert."""
    found = {(cell.key.model, cell.key.data): cell for cell in results}
    for task, expert in EXPERT_OF.items():
        if (expert, task) in found:
            found["experts", task] = found[expert, task]
    return found


def gain(found: dict[tuple[str, str], CellResult], first: str, second: str) -> Contrast | None:
    """The mean over tasks of what the second is better than the first, on the same images."""
    tasks = list(EXPERT_OF)
    if not all((name, task) in found for name in (first, second) for task in tasks):
        return None
    return mean_contrast(
        [paired(*(found[name, task].outcome("correct") for name in (second, first)))
         for task in tasks]
    )  # fmt: skip


VERDICTS = {"held": "holds", "did not hold": "the other way round",
            "not told apart": "not told apart"}  # fmt: skip


def order(results: list[CellResult], chain: Sequence[str]) -> None:
    """Whether each method of the published order beats the one before it, on the same images."""
    found = by_model(results)
    body = []
    chain = [name for name in chain if gain(found, name, name) is not None]
    for first, second in itertools.pairwise(chain):
        difference = gain(found, first, second)
        if difference is not None:
            body.append(
                [
                    f"{first} < {second}",
                    str(difference),
                    VERDICTS.get(difference.verdict, difference.verdict),
                ]
            )
    put("order", markdown(["published order", "difference of means, points [95 %]", "here"], body))


def entropy(results: list[CellResult], chain: Sequence[str]) -> None:
    """Accuracy, calibration and loss of methods that learn by entropy, beside those that do not."""
    found = by_model(results)
    body = []
    for name in chain:
        cells = [found.get((name, task)) for task in EXPERT_OF]
        parts = []
        for cell in cells:
            scores = [cell.score(key) for key in ("accuracy", "ece", "nll")] if cell else []
            known = [score.value for score in scores if score is not None]
            parts.append(
                f"{100 * known[0]:.1f} / {100 * known[1]:.1f} / {known[2]:.2f}" if known else "-"
            )
        body.append([name, *parts])
    put("entropy", markdown(["method", *EXPERT_OF], body))


def pools() -> None:
    """The candidate pools on validation images, from pools.csv."""
    with (HERE / "pools.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    found = {(row["pool"], row["model"], row["task"]): float(row["accuracy"]) for row in rows}
    simple = list(dict.fromkeys(r["model"] for r in rows if not r["model"].startswith("clip-")))
    body = []
    for pool in dict.fromkeys(row["pool"] for row in rows):
        base = [found[pool, "clip-base", task] for task in EXPERT_OF]
        own = [found[pool, expert, task] for task, expert in EXPERT_OF.items()]
        means = {
            name: sum(found[pool, name, task] for task in EXPERT_OF) / len(EXPERT_OF)
            for name in simple
        }
        best = max(means, key=means.__getitem__)
        start, goal = sum(base) / len(base), sum(own) / len(own)
        pairs = [f"{100 * a:.0f} / {100 * b:.0f}" for a, b in zip(base, own, strict=True)]
        least = min(b - a for a, b in zip(base, own, strict=True))
        body.append(
            [pool, *pairs, f"{100 * start:.1f} / {100 * goal:.1f}", f"{100 * least:.1f}",
             f"{best}: {100 * means[best]:.1f}", f"{(means[best] - start) / (goal - start):.2f}"]
        )  # fmt: skip
    body.sort(key=lambda row: row[-1], reverse=True)
    head = ["pool", *EXPERT_OF, "mean", "smallest gain", "best simple fusion", "share"]
    put("pools", markdown(head, body))


SWITCHED = ("emr", "tall_mask")


def make_switched(pool: Path, out: Path, limit: int | None) -> None:
    """Make the methods that give a model per member; measure each model on its member's task."""
    from stockpot.fuse.run import fuse
    from stockpot.measure.run import measure

    members = {name: pool / name for name in EXPERT_OF.values()}
    for method in SWITCHED:
        if not (out / method).is_dir():
            fuse(method, members, base=pool / "clip-base", out=out / method)
        for task, member in EXPERT_OF.items():
            models = {f"{method}-{member}": out / method / member}
            if list((out / "results").glob(f"{method}-{member}--clean--{task}--*")):
                continue  # of this run, whatever the number of images
            measure(
                models, {"clean": {"per_class": False}}, data=task, out=out, batch_size=256,
                data_options={"limit": limit},
            )  # fmt: skip


def switched(out: Path) -> list[TaskRow]:
    """A row for each of those methods, from its saved results."""
    found = {(cell.key.model, cell.key.data): cell for cell in load_results(out)}
    rows = []
    for method in SWITCHED:
        scores = [found[f"{method}-{m}", t].score("accuracy") for t, m in sorted(EXPERT_OF.items())]
        rows.append(TaskRow(f"{method} (a model per task)", scores, mean_score(scores)))
    return rows


def draw_means(rows: Sequence[TaskRow], name: str, title: str) -> None:
    marks = [
        Mark(row.model, row.mean.value, row.mean.ci_low or 0, row.mean.ci_high or 1,
             percents(row.mean))
        for row in rows if row.mean is not None
    ]  # fmt: skip
    save(whiskers(marks, title=title), HERE / name)


def draw_sweep(rows: Sequence[TaskRow], tasks: Sequence[str]) -> None:
    def line(scores: Sequence[Score | None]) -> list[Spot]:
        known = zip(rows, scores, strict=True)
        return [Spot(float(r.model.partition("=")[2]), s.value, s.ci_low, s.ci_high)
                for r, s in known if s is not None]  # fmt: skip

    drawn = {"mean": line([row.mean for row in rows])}
    drawn |= {task: line([row.scores[k] for row in rows]) for k, task in enumerate(tasks)}
    picture = lines(drawn, across="scale of task arithmetic", up="accuracy")
    save(picture, HERE / "sweep.svg")


def draw_severities(
    rows: Sequence[Sequence[str]], starts: dict[str, Score | None], severities: Sequence[int]
) -> None:
    drawn = {}
    for model, *values in rows:
        start = starts[model]
        first = [Spot(0, start.value)] if start else []
        pairs = zip(severities, values, strict=True)
        drawn[model] = first + [Spot(severity, float(value) / 100) for severity, value in pairs]
    up = "accuracy, mean over tasks and corruptions"
    save(lines(drawn, across="severity (0: clean)", up=up), HERE / "robustness.svg")


def _mean(scores: Sequence[Score | None]) -> str:
    known = [score.value for score in scores if score is not None]
    return f"{100 * sum(known) / len(known):.1f}" if known else "-"


def main(arguments: list[str]) -> None:
    runs = Path(arguments[0])
    extra: list[TaskRow] = []
    if "--switched" in arguments:
        import stockpot

        limit = int(arguments[3]) if arguments[2:3] == ["--images"] else None
        zoo = Path(stockpot.__file__).parent / "zoo" / "models"
        make_switched(zoo, runs / "clip_switched", limit)
        return
    if (runs / "clip_switched").is_dir():
        extra = switched(runs / "clip_switched")
    fused = load_results(runs / "clip_fusion")
    fusion(fused, extra)
    order(
        fused,
        ["clip-base", "average", "task_arithmetic-scale=0.3", "ties", "regmean",
         "adamerging-layer", "wemoe", "experts"],
    )  # fmt: skip
    entropy(
        fused,
        ["clip-base", "average", "regmean", "smile", "adamerging-layer", "adamerging-layer-fast",
         "wemoe", "wemoe-fast"],
    )  # fmt: skip
    pools()
    generalisation(load_results(runs / "clip_generalisation"))
    robustness(load_results(runs / "clip_robustness"))


if __name__ == "__main__":
    main(sys.argv[1:])
