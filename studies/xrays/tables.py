"""Tables and verdicts of the X-rays, from the run that `study.py` left.

    python studies/xrays/tables.py runs/xrays

Copies outcomes.json beside this file and fills README.md; without a run it does so from the
outcomes.json that is here. The verdicts follow plan.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from claims import CLAIMS, Judge, Outcomes, shares

from stockpot.files import write_atomic
from stockpot.results.groups import means_of
from stockpot.results.packed import unpack_bits, unpack_groups
from stockpot.results.statistics import bootstrap_mean
from stockpot.results.tables import fill, markdown, percent

HERE = Path(__file__).parent
SETS = ("inside", "swapped", "lungs", "outside")
CUES = {
    "picture": "the whole picture", "frame": "its frame, two pixels of 64",
    "outside": "all but the lungs", "lungs": "the lungs alone", "outline": "the lungs' outline",
}  # fmt: skip


def verdict_table(judge: Judge) -> str:
    """One verdict a claim."""
    rows = [(claim.name, claim.text, judge.verdict(claim)) for claim in CLAIMS]
    return markdown(("claim", "text", "verdict"), rows)


def part_table(judge: Judge) -> str:
    """Every part with its interval."""
    rows = [
        (claim.name, part.text, f"{100 * part.margin:g}", str(judge.judged(part)))
        for claim in CLAIMS
        for part in claim.parts
    ]
    return markdown(("claim", "part", "margin", "points [95 %]"), rows)


def score_table(judge: Judge) -> str:
    """Accuracy of every model; intervals over patients and seeds as they were drawn."""
    means = {key: means_of(judge.found, [key]) for key in SETS}
    rows = [
        (f"`{model}`",
         *(percent(found[model].value, *found[model].interval[:2]) if model in found else ""
           for found in means.values()))
        for model in means["inside"]
    ]  # fmt: skip
    return markdown(("model", *SETS), rows)


def overlap_table(judge: Judge, outcomes: Outcomes) -> str:
    """IoU and the share of lung that is covered, by masks of equal size."""
    found = {kind: means_of(judge.found, [kind]) for kind in ("iou", "covered")}
    order = sorted(found["iou"], key=lambda name: found["iou"][name].value)
    low, high = (found["iou"][name].value for name in ("random mask", "true cells"))
    masks = dict(outcomes["baselines"]) | {"start": outcomes["start"]["masks"]}
    rows = []
    for name in order:
        iou, covered = found["iou"][name], found["covered"][name]
        shown = f"relevance of `{name}`" if name not in outcomes["baselines"] else name
        runs = [masks[name]] if name in masks else [
            run["masks"] for run in outcomes["models"][name].values()
        ]  # fmt: skip
        rows.append((shown, percent(iou.value, *iou.interval[:2]),
                     percent(covered.value, *covered.interval[:2]),
                     percent(np.mean([precise(run, outcomes) for run in runs])),
                     percent((iou.value - low) / (high - low))))  # fmt: skip
    heads = ("mask", "IoU", "of the lungs covered", "of the mask in lungs",
             "way from random to true")  # fmt: skip
    return markdown(heads, rows)


def precise(masks: dict[str, str], outcomes: Outcomes) -> float:
    """The mean share of a mask that lies in the lungs, from the sizes of both."""
    size = shares(outcomes["lungs"])
    return float((shares(masks["covered"]) * size / shares(masks["picture"])).mean())


def cue_table(outcomes: Outcomes) -> str:
    """What linear probes tell from parts of the pictures."""
    groups = unpack_groups(outcomes["patients"])
    rows = []
    for kind, text in CUES.items():
        right = unpack_bits(outcomes["cues"][kind], outcomes["n"]).astype(float)
        low, high = bootstrap_mean(right, groups=groups)[:2]
        rows.append((text, percent(right.mean(), low, high)))
    return markdown(("a linear probe sees", "accuracy on `inside`"), rows)


def chosen_table(outcomes: Outcomes) -> str:
    """What was chosen, and how much masks by relevance covered in the end."""
    said = outcomes["chosen"]
    rows: list[tuple[object, ...]] = [
        (name, said["lr" if name == "rate" else "beta"],
         ", ".join(f"{value}: {100 * score['inside']:.1f}" for value, score in tried.items()))
        for name, tried in said["validation"].items()
    ]  # fmt: skip
    ends = [run["coverage"] for run in outcomes["models"]["relevance"].values()]
    rows.append(("coverage", f"{100 * said['coverage']:.0f} %",
                 f"at relevance above {said['threshold']:.2f} of the largest; after tuning "
                 f"{100 * float(np.mean(ends)):.0f} %"))  # fmt: skip
    return markdown(("setting", "chosen", "inside on validation"), rows)


def from_data(outcomes: Outcomes) -> dict[str, str]:
    """The places of README.md that follow from outcomes.json."""
    judge = Judge(outcomes)
    return {
        "seeds": str(judge.seeds),
        "verdicts": verdict_table(judge),
        "parts": part_table(judge),
        "scores": score_table(judge),
        "overlap": overlap_table(judge, outcomes),
        "cues": cue_table(outcomes),
        "chosen": chosen_table(outcomes),
    }


def main(arguments: Sequence[str]) -> None:
    """Copy outcomes.json and fill."""
    if arguments:
        text = (Path(arguments[0]) / "outcomes.json").read_text(encoding="utf-8")
        write_atomic(HERE / "outcomes.json", text)
    outcomes = json.loads((HERE / "outcomes.json").read_text(encoding="utf-8"))
    fill(HERE / "README.md", from_data(outcomes))


if __name__ == "__main__":
    main(sys.argv[1:])
