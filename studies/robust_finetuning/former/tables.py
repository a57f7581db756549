"""Tables and figures of the study, from the run folders of its two recipes.

    python studies/robust_finetuning/former/tables.py RUN RUN_DOMAINS
    python studies/robust_finetuning/former/tables.py        # from the CSV files that lie here

Writes scores.csv, claims.csv, masks.csv and the figures, and fills the tables of README.md.
Claims M1 to M7 are contrasts: models with a factor each, whose sum should be above zero.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stockpot.charts import save
from stockpot.files import write_atomic
from stockpot.report.sections.scatter import scatter
from stockpot.results.contrast import Contrasts, minus
from stockpot.results.groups import Answers, answers, means_of
from stockpot.results.schema import CellResult
from stockpot.results.store import load_results
from stockpot.results.tables import csv_text, markdown, percent, read_csv
from stockpot.results.tables import fill as fill_page

HERE = Path(__file__).parent
MASKS, FILLS = ("random", "context", "object"), ("none", "single", "multi")
SHARES = (25, 50, 75)
Contrast = Mapping[str, float]
COPIES = {"inside": 4, "shuffled": 4, "reversed": 4, "family": 4}
"""Pictures of one object, which follow one another; they are no independent images."""
Found = dict[str, dict[str, Answers]]
Row = dict[str, Any]


class Experiment(NamedTuple):
    """Some models of a run, and what counts as inside and outside for them."""

    name: str
    run: int
    prefix: str
    inside: list[str]
    outside: list[str]
    kinds: dict[str, list[str]]
    """The sets outside by what has changed."""


EXPERIMENTS = (
    Experiment("contexts", 0, "", ["inside"], ["shuffled", "reversed", "family"],
               {"contexts": ["shuffled", "reversed"], "icon family": ["family"]}),
    Experiment("photographs", 0, "photo-", ["photo"], ["photo-c", "drawing", "icon"],
               {"corruptions": ["photo-c"], "other domains": ["drawing", "icon"]}),
    Experiment("drawings", 1, "", ["drawing"], ["photo", "icon"], {"domains": ["photo", "icon"]}),
)  # fmt: skip


class Claim(NamedTuple):
    """A number of the paper's list, what it says, and on which side it is looked at."""

    name: str
    text: str
    contrast: Contrast
    side: str
    """`inside` or `outside`."""


def claims() -> list[Claim]:
    """All comparisons, in the order of the list."""
    found: list[Claim] = []

    def add(name: str, text: str, contrast: Contrast, side: str = "outside") -> None:
        found.append(Claim(name, text, contrast, side))

    add("M1", "vanilla gains inside over zero-shot", minus("vanilla", "zero-shot"), "inside")
    add("M1", "vanilla loses outside against zero-shot", minus("zero-shot", "vanilla"))
    add("M2", "distillation without masks beats vanilla outside", minus("no-mask", "vanilla"))
    add("M2", "it lies above the middle of vanilla and zero-shot outside",
        minus("no-mask", ("vanilla", "zero-shot")))  # fmt: skip
    for fill in ("single", "multi"):
        add("M3", f"{fill}-fill beats no fill outside, mean of all masks",
            minus(_over_masks(fill), _over_masks("none")))  # fmt: skip
    add("M3", "single-fill beats multi-fill outside, mean of all masks",
        minus(_over_masks("single"), _over_masks("multi")))  # fmt: skip
    add("M3", "multi-fill beats single-fill inside, mean of all masks",
        minus(_over_masks("multi"), _over_masks("single")), "inside")  # fmt: skip
    for mask in MASKS:
        for better, worse in (("single", "none"), ("multi", "none"), ("single", "multi")):
            add("M3", f"{mask}: {better} beats {worse} outside",
                minus(f"{mask}-{better}", f"{mask}-{worse}"))  # fmt: skip
    for better, worse in (("object", "random"), ("random", "context"), ("object", "context")):
        add("M4", f"{better} masks beat {worse} ones outside, mean of all fills",
            minus(_over_fills(better), _over_fills(worse)))  # fmt: skip
        for fill in FILLS:
            add("M4", f"{fill}: {better} masks beat {worse} ones outside",
                minus(f"{better}-{fill}", f"{worse}-{fill}"))  # fmt: skip
    for share in SHARES:
        for side in ("inside", "outside"):
            add("M6", f"WiSE-FT {share} % beats vanilla {side}",
                minus(f"wise-ft-{share}", "vanilla"), side)  # fmt: skip
            add("M6", f"WiSE {share} % of object-single gains {side}",
                minus(f"object-wise-{share}", "object-single"), side)  # fmt: skip
    add("M7", "WiSE-KD beats vanilla outside", minus("wise-kd", "vanilla"))
    add("M7", "WiSE-KD added to object-single gains outside",
        minus("object-wise-kd", "object-single"))  # fmt: skip
    add("M7", "WiSE-KD helps vanilla more than object-single outside",
        {"wise-kd": 1, "vanilla": -1, "object-wise-kd": -1, "object-single": 1})  # fmt: skip
    for other in ("vanilla", "lp-ft", "l2-sp", "flyp", "no-mask", "wise-ft-50", "wise-kd", "soup"):
        for side in ("outside", "inside"):
            add("main", f"object-single beats {other} {side}",
                minus("object-single", other), side)  # fmt: skip
    for other in ("object-other-class", "object-low-relevance", "object-soup"):
        for side in ("outside", "inside"):
            add("beyond", f"{other} beats object-single {side}",
                minus(other, "object-single"), side)  # fmt: skip
    return found


def _over_masks(fill: str) -> list[str]:
    return [f"{mask}-{fill}" for mask in MASKS]


def _over_fills(mask: str) -> list[str]:
    return [f"{mask}-{fill}" for fill in FILLS]


def by_object(results: Sequence[CellResult]) -> Found:
    """Answers, where pictures of one object count as one image with a share that is right."""

    def joined(run: Answers) -> Answers:
        return {
            data: right.reshape(-1, COPIES.get(data, 1)).mean(axis=1) for data, right in run.items()
        }

    return {
        name: {run: joined(found) for run, found in runs.items()}
        for name, runs in answers(results).items()
    }


def score_rows(given: Experiment, results: Found) -> list[Row]:
    """Every model: the mean inside, the mean outside, and each dataset; and the figure."""
    sets = [*given.inside, *given.outside]
    groups = {"inside": given.inside, "outside": given.outside} | {f"on {d}": [d] for d in sets}
    means = {title: means_of(results, data) for title, data in groups.items()}
    inside, outside = means["inside"], means["outside"]
    names = sorted(set(inside) & set(outside), key=lambda name: -outside[name].value)
    rows: list[Row] = []
    for place, name in enumerate(names, start=1):
        row: Row = {"experiment": given.name, "point": place}
        row["model"] = name.removeprefix(given.prefix)
        for title in groups:
            value, (low, high, _) = means[title][name].value, means[title][name].interval
            row |= {title: round(value, 6), f"{title} low": round(low, 6),
                    f"{title} high": round(high, 6)}  # fmt: skip
        rows.append(row | {"runs": len(outside[name].runs), "n outside": outside[name].n})
    titles = [", ".join(data) for data in (given.inside, given.outside)]
    points = [
        (a._replace(name=row["model"]), b._replace(name=row["model"]))
        for row, a, b in ((row, inside[n], outside[n]) for row, n in zip(rows, names, strict=True))
    ]
    chart = scatter(points, f"accuracy on {titles[0]}", f"mean accuracy on {titles[1]}")
    save(chart, HERE / f"{given.name}.svg")
    return rows


def claim_rows(runs: Sequence[Found]) -> list[Row]:
    """Every claim in every experiment, over all sets outside and by what has changed there."""
    shown = [given for given in EXPERIMENTS if given.run < len(runs)]
    scores = {given.name: Contrasts(runs[given.run], given.prefix) for given in shown}
    rows: list[Row] = []
    for claim in claims():
        places = [(given, claim.side, given.inside if claim.side == "inside" else given.outside)
                  for given in shown]  # fmt: skip
        if claim.side == "outside":
            places += [(given, kind, data) for given in shown if len(given.kinds) > 1
                       for kind, data in given.kinds.items()]  # fmt: skip
        for given, kind, data in places:
            if found := scores[given.name].of(claim.contrast, data):
                ends = {k: round(100 * v, 2) for k, v in found._asdict().items()}
                rows.append(
                    {"experiment": given.name, "sets": kind, "claim": claim.name,
                     "text": claim.text, "points": ends["value"], "low": ends["low"],
                     "high": ends["high"], "verdict": found.verdict}
                )  # fmt: skip
    return rows


def mask_rows(results: Sequence[CellResult]) -> list[Row]:
    """Masking rates and IoU per threshold, of every run."""
    return [
        {"model": cell.key.model, "metric": score.metric,
         "threshold": score.condition.get("threshold"), "value": round(score.value, 6),
         "low": round(score.ci_low or 0, 6), "high": round(score.ci_high or 0, 6), "n": score.n}
        for cell in results if cell.key.measure == "object_masks" for score in cell.scores
    ]  # fmt: skip


def score_table(given: Experiment, rows: Sequence[Row]) -> str:
    """Models by their mean outside."""
    body = [
        [f"{row['point']:.0f}", row["model"],
         *(percent(*(row[f"{side}{end}"] for end in ("", " low", " high")))
           for side in ("inside", "outside")),
         *(percent(row[f"on {data}"]) for data in given.outside), f"{row['runs']:.0f}"]
        for row in rows if row["experiment"] == given.name
    ]  # fmt: skip
    return markdown(["point", "model", "inside", "outside", *given.outside, "runs"], body)


def mask_table(rows: Sequence[Row]) -> str:
    """How much is masked at each threshold, of pictures and of objects; the first seed."""
    models = ["object-single-s0", "vanilla-s0", "zero-shot"]
    metrics = {"image": "image_masking_rate", "object": "object_masking_rate", "IoU": "mask_iou"}
    by = {(row["model"], row["metric"], row["threshold"]): row["value"] for row in rows}
    thresholds = sorted({row["threshold"] for row in rows if row["threshold"]}, reverse=True)
    head = [f"{name.removesuffix('-s0')}: {short}" for name in models for short in metrics]
    body = [[t, *(f"{by[m, key, t]:.2f}" for m in models for key in metrics.values())]
            for t in thresholds]  # fmt: skip
    return markdown(["threshold", *head], body)


def difference_table(rows: Sequence[Row]) -> str:
    """The main differences by experiment and part of the sets."""
    at = {(row["experiment"], row["sets"], row["text"]): row for row in rows}
    places = list(dict.fromkeys((row["experiment"], row["sets"]) for row in rows))
    body = []
    for given in EXPERIMENTS:
        for experiment, sets in (place for place in places if place[0] == given.name):
            found = []
            for inside, outside, sign in DIFFERENCES.values():
                row = at.get((experiment, sets, inside if sets == "inside" else outside))
                found.append(_points(row, 1 if sets == "inside" else sign) if row else "")
            body.append([experiment, sets, *found])
    return markdown(["experiment", "sets", *DIFFERENCES], body)


DIFFERENCES = {
    "`vanilla` less `zero-shot`":
    ("vanilla gains inside over zero-shot", "vanilla loses outside against zero-shot", -1),
    "`no-mask` less `vanilla`": ("", "distillation without masks beats vanilla outside", 1),
    "`object-single` less `no-mask`":
    ("object-single beats no-mask inside", "object-single beats no-mask outside", 1),
    "`wise-ft-50` less `vanilla`":
    ("WiSE-FT 50 % beats vanilla inside", "WiSE-FT 50 % beats vanilla outside", 1),
    "`wise-kd` less `vanilla`": ("", "WiSE-KD beats vanilla outside", 1),
}  # fmt: skip
"""A column, the comparison of claims.csv inside and outside, and the sign of the latter."""


def _points(row: Row, sign: int) -> str:
    value, *ends = (sign * row[key] for key in ("points", "low", "high"))
    return f"{value:+.1f} [{min(ends):+.1f}, {max(ends):+.1f}]"


def from_data(
    scores: Sequence[Row], masks: Sequence[Row], compared: Sequence[Row]
) -> dict[str, str]:
    """The places of README.md that the CSV files fill."""
    found = {given.name: score_table(given, scores) for given in EXPERIMENTS}
    return found | {"masks": mask_table(masks), "differences": difference_table(compared)}


def main() -> None:
    if len(sys.argv) not in (1, 3):
        sys.exit("usage: python studies/robust_finetuning/former/tables.py [RUN RUN_DOMAINS]")
    if sys.argv[1:]:
        runs = [load_results(folder) for folder in sys.argv[1:]]
        found = [by_object(results) for results in runs]
        scored = [row for given in EXPERIMENTS for row in score_rows(given, found[given.run])]
        files = {"scores": scored, "claims": claim_rows(found), "masks": mask_rows(runs[0])}
        for name, rows in files.items():
            write_atomic(HERE / f"{name}.csv", csv_text(rows))
    kept = (read_csv(HERE / f"{name}.csv") for name in ("scores", "masks", "claims"))
    fill_page(HERE / "README.md", from_data(*kept))


if __name__ == "__main__":
    main()
