"""Tables and figures of the study, from the run folders of its two recipes.

    python studies/robust_finetuning/tables.py runs/robust_finetuning runs/robust_finetuning_domains

Writes scores.csv, claims.csv, masks.csv and the figures beside itself, and prints Markdown tables.
Claims M1 to M7 are contrasts: models with a factor each, whose sum should be above zero.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from stockpot.charts import save
from stockpot.files import write_atomic
from stockpot.report.scatter import scatter
from stockpot.results.contrast import Contrasts, minus
from stockpot.results.groups import Answers, GroupMean, answers, means_of
from stockpot.results.schema import CellResult
from stockpot.results.store import load_results
from stockpot.results.tables import csv_text, markdown, percent

HERE = Path(__file__).parent
MASKS, FILLS = ("random", "context", "object"), ("none", "single", "multi")
SHARES = (25, 50, 75)
Contrast = Mapping[str, float]
COPIES = {"inside": 4, "shuffled": 4, "reversed": 4, "family": 4}
"""Pictures of one object, which follow one another; they are no independent images."""
Found = dict[str, dict[str, Answers]]


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


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    print(markdown(header, rows) + "\n")


def text(mean: GroupMean) -> str:
    return percent(mean.value, mean.interval.low, mean.interval.high)


class Claim(NamedTuple):
    """A number of the paper's list, what it says, and on which side it is looked at."""

    name: str
    text: str
    contrast: Contrast
    side: str
    """`inside` or `outside`."""
    detail: bool = False
    """Part of a mean that is a claim of its own."""


def claims() -> list[Claim]:
    """All comparisons, in the order of the list."""
    found: list[Claim] = []

    def add(
        name: str, text: str, contrast: Contrast, side: str = "outside", detail: bool = False
    ) -> None:
        found.append(Claim(name, text, contrast, side, detail))

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
                minus(f"{mask}-{better}", f"{mask}-{worse}"), detail=True)  # fmt: skip
    for better, worse in (("object", "random"), ("random", "context"), ("object", "context")):
        add("M4", f"{better} masks beat {worse} ones outside, mean of all fills",
            minus(_over_fills(better), _over_fills(worse)))  # fmt: skip
        for fill in FILLS:
            add("M4", f"{fill}: {better} masks beat {worse} ones outside",
                minus(f"{better}-{fill}", f"{worse}-{fill}"), detail=True)  # fmt: skip
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


def score_rows(given: Experiment, results: Found) -> list[dict[str, object]]:
    """Every model: the mean inside, the mean outside, and each dataset; and the figure."""
    sets = [*given.inside, *given.outside]
    groups = {"inside": given.inside, "outside": given.outside} | {f"on {d}": [d] for d in sets}
    means = {title: means_of(results, data) for title, data in groups.items()}
    inside, outside = means["inside"], means["outside"]
    names = sorted(set(inside) & set(outside), key=lambda name: -outside[name].value)
    first = names[0]
    independent = "objects" if given.name == "contexts" else "images"
    print(
        f"## {given.name}: {inside[first].n:,} {independent} inside, {outside[first].n:,} outside\n"
    )
    rows: list[dict[str, object]] = []
    for place, name in enumerate(names, start=1):
        row: dict[str, object] = {"experiment": given.name, "point": place}
        row["model"] = name.removeprefix(given.prefix)
        for title in groups:
            found = means[title][name]
            row |= {title: round(found.value, 4), f"{title} low": round(found.interval.low, 4),
                    f"{title} high": round(found.interval.high, 4)}  # fmt: skip
        row |= {"runs": len(outside[name].runs), "n outside": outside[name].n}
        rows.append(row)
    shown = given.outside if len(given.outside) > 1 else []
    table(
        ["point", "model", "inside", "outside", *shown, "runs"],
        [
            [place, name.removeprefix(given.prefix), text(inside[name]), text(outside[name])]
            + [f"{100 * means[f'on {data}'][name].value:.1f}" for data in shown]
            + [len(outside[name].runs)]
            for place, name in enumerate(names, start=1)
        ],
    )
    titles = [", ".join(data) for data in (given.inside, given.outside)]
    points = [(_renamed(inside[name], given), _renamed(outside[name], given)) for name in names]
    chart = scatter(points, f"accuracy on {titles[0]}", f"mean accuracy on {titles[1]}")
    save(chart, HERE / f"{given.name}.svg")
    return rows


def _renamed(mean: GroupMean, given: Experiment) -> GroupMean:
    return mean._replace(name=mean.name.removeprefix(given.prefix))


def claim_rows(runs: Sequence[Found]) -> list[dict[str, object]]:
    """Every claim in every experiment, over all sets outside and by what has changed there."""
    shown = [given for given in EXPERIMENTS if given.run < len(runs)]
    scores = {given.name: Contrasts(runs[given.run], given.prefix) for given in shown}
    rows: list[dict[str, object]] = []

    def compared(claim: Claim, given: Experiment, kind: str, data: list[str]) -> str:
        found = scores[given.name].of(claim.contrast, data)
        if found is None:
            return ""
        rows.append(
            {"experiment": given.name, "sets": kind, "claim": claim.name, "text": claim.text,
             "points": round(100 * found.value, 2), "low": round(100 * found.low, 2),
             "high": round(100 * found.high, 2), "verdict": found.verdict}
        )  # fmt: skip
        return f"{found} {found.verdict}"

    whole, parts = [], []
    for claim in claims():
        side = claim.side
        line = [
            compared(claim, given, side, given.inside if side == "inside" else given.outside)
            for given in shown
        ]
        if any(line) and not claim.detail:
            whole.append([claim.name, claim.text, *line])
        if side == "outside":
            line = [
                compared(claim, given, kind, data)
                for given in shown
                for kind, data in given.kinds.items()
                if len(given.kinds) > 1
            ]
            if any(line) and not claim.detail:
                parts.append([claim.name, claim.text.replace(" outside", ""), *line])
    print("## Claims, differences in points [95 %]\n")
    table(["claim", "says", *(given.name for given in shown)], whole)
    print("## The same by what has changed outside\n")
    kinds = [kind for given in shown for kind in given.kinds if len(given.kinds) > 1]
    table(["claim", "says", *kinds], parts)
    return rows


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
    models = sorted({str(row["model"]) for row in rows if str(row["model"])[-1] not in "12"})
    thresholds = sorted({float(str(row["threshold"])) for row in rows if row["threshold"] != ""})
    by = {(row["model"], row["metric"], row["threshold"]): row["value"] for row in rows}
    metrics = {"image": "image_masking_rate", "object": "object_masking_rate", "IoU": "mask_iou"}
    if models:
        print("## Masks\n\npointing: " + ", ".join(f"{m} {by[m, 'pointing', '']}" for m in models))
        table(
            ["threshold", *(f"{model}: {short}" for model in models for short in metrics)],
            [
                [t, *(f"{by[m, key, t]:.2f}" for m in models for key in metrics.values())]
                for t in reversed(thresholds)
            ],
        )
    return rows


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("usage: python studies/robust_finetuning/tables.py RUN [RUN_DOMAINS]")
    runs = [load_results(folder) for folder in sys.argv[1:]]
    found = [by_object(results) for results in runs]
    scored: list[dict[str, object]] = []
    for given in EXPERIMENTS:
        if given.run < len(runs):
            scored += score_rows(given, found[given.run])
    write_atomic(HERE / "scores.csv", csv_text(scored))
    write_atomic(HERE / "claims.csv", csv_text(claim_rows(found)))
    if masks := mask_rows(runs[0]):
        write_atomic(HERE / "masks.csv", csv_text(masks))


if __name__ == "__main__":
    main()
