"""Tables and figures of the study, from the run folders of its two recipes.

    stockpot run recipes/robust_finetuning.yaml
    stockpot run recipes/robust_finetuning_domains.yaml
    python studies/robust_finetuning/study.py runs/robust_finetuning runs/robust_finetuning_domains

Writes scores.csv, claims.csv, masks.csv and the figures beside itself, and prints Markdown tables.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from claims import Scores, claims

from stockpot.report.scatter import scatter
from stockpot.results.groups import GroupMean, group_means
from stockpot.results.schema import CellResult
from stockpot.results.store import load_results
from stockpot.seeds import name_of

HERE = Path(__file__).parent
AXES = {
    "contexts": (["inside"], ["shuffled", "reversed"]),
    "domains": (["drawing"], ["photo", "icon"]),
}
STYLE = (
    "<style>text{font:12px system-ui,sans-serif;fill:#1f2421}.tick{fill:#66706a;font-size:11px;"
    "text-anchor:middle}.grid{stroke:#dcdad2}.error{stroke:#e9b79d;stroke-width:1.5}.run{fill:"
    "#66706a}.dot{fill:#b4532a}.mark{fill:#fff;font-size:9.5px;font-weight:700;text-anchor:middle}"
    "</style><rect width='100%' height='100%' fill='#fbfaf7'/>"
)


def write_csv(path: Path, rows: Sequence[dict[str, object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    print()


def text(mean: GroupMean) -> str:
    low, high = 100 * mean.interval.low, 100 * mean.interval.high
    return f"{100 * mean.value:.1f} [{low:.1f}, {high:.1f}]"


def score_rows(name: str, results: Sequence[CellResult]) -> list[dict[str, object]]:
    """Every model: the mean inside, the mean outside, and each dataset; and its corruptions."""
    inside, outside = AXES[name]
    groups = {"inside mean": inside, "outside mean": outside}
    groups |= {data: [data] for data in [*inside, *outside]}
    means = {title: group_means(results, data) for title, data in groups.items()}
    corrupted: dict[str, list[float]] = {}
    for cell in results:
        if cell.key.measure == "corruption":
            value = cell.score("mean_corruption_accuracy").value
            corrupted.setdefault(name_of(cell.key.model), []).append(value)
    rows = []
    order = sorted(means["outside mean"].values(), key=lambda mean: -mean.value)
    within = means["inside mean"][order[0].name].n
    print(f"## {name}: {within:,} images inside, {order[0].n:,} outside\n")
    for place, mean in enumerate(order, start=1):
        row: dict[str, object] = {"set": name, "point": place, "model": mean.name}
        for title in groups:
            found = means[title][mean.name]
            row |= {title: round(found.value, 4), f"{title} low": round(found.interval.low, 4),
                    f"{title} high": round(found.interval.high, 4)}  # fmt: skip
        row |= {"runs": len(mean.runs), "n outside": mean.n}
        if values := corrupted.get(mean.name):
            row["corrupted"] = round(sum(values) / len(values), 4)
        rows.append(row)
    singles = [*inside, *outside] if len(outside) > 1 else []
    extra = ["corrupted"] if corrupted else []
    table(
        ["point", "model", "inside mean", "outside mean", *singles, *extra, "runs"],
        [
            [
                row["point"],
                row["model"],
                text(means["inside mean"][str(row["model"])]),
                text(means["outside mean"][str(row["model"])]),
                *(f"{100 * means[data][str(row['model'])].value:.1f}" for data in singles),
                *(f"{100 * float(str(row[key])):.1f}" for key in extra if key in row),
                row["runs"],
            ]
            for row in rows
        ],
    )
    points = [(means["inside mean"][str(row["model"])], means["outside mean"][str(row["model"])])
              for row in rows]  # fmt: skip
    titles = ("accuracy on " + ", ".join(inside), "mean accuracy on " + ", ".join(outside))
    chart = str(scatter(points, *titles))
    head, _, rest = chart.partition(">")
    (HERE / f"{name}.svg").write_text(f"{head}>{STYLE}{rest}\n", encoding="utf-8")
    return rows


def claim_rows(name: str, results: Sequence[CellResult]) -> list[dict[str, object]]:
    found = claims(Scores(results), *AXES[name])
    table(
        ["claim", "says", "difference in points [95 %]", "verdict"],
        [[claim.name, claim.text, claim.difference, claim.verdict] for claim in found],
    )
    return [
        {"set": name, "claim": c.name, "text": c.text, "points": round(c.difference.value, 2),
         "low": round(c.difference.low, 2), "high": round(c.difference.high, 2),
         "verdict": c.verdict}
        for c in found
    ]  # fmt: skip


def mask_rows(results: Sequence[CellResult]) -> list[dict[str, object]]:
    """Masking rates and IoU per threshold, of every run."""
    rows: list[dict[str, object]] = []
    for cell in results:
        if cell.key.measure != "object_masks":
            continue
        rows += [
            {"model": cell.key.model, "metric": score.metric,
             "threshold": score.condition.get("threshold", ""), "value": round(score.value, 4),
             "low": round(score.ci_low or 0, 4), "high": round(score.ci_high or 0, 4),
             "n": score.n}
            for score in cell.scores
        ]  # fmt: skip
    models = list(dict.fromkeys(str(row["model"]) for row in rows))
    thresholds = sorted({float(str(row["threshold"])) for row in rows if row["threshold"] != ""})
    by = {(row["model"], row["metric"], row["threshold"]): row["value"] for row in rows}
    for model in models:
        print(f"masks of {model}: pointing {by[model, 'pointing', '']}")
        metrics = ("image_masking_rate", "object_masking_rate", "mask_iou")
        table(
            ["threshold", *metrics],
            [[t, *(by[model, metric, t] for metric in metrics)] for t in reversed(thresholds)],
        )
    return rows


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("usage: python studies/robust_finetuning/study.py RUN [RUN_DOMAINS]")
    scored: list[dict[str, object]] = []
    claimed: list[dict[str, object]] = []
    for name, folder in zip(AXES, sys.argv[1:], strict=False):
        results = load_results(folder)
        rows = score_rows(name, results)
        write_csv(HERE / f"{name}.csv", rows)
        scored += rows
        claimed += claim_rows(name, results)
        if masks := mask_rows(results):
            write_csv(HERE / "masks.csv", masks)
    write_csv(HERE / "claims.csv", claimed)


if __name__ == "__main__":
    main()
