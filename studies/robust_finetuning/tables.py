"""Tables, figure and verdicts of counterfactual fine-tuning, from the run that `study.py` left.

    python studies/robust_finetuning/tables.py runs/masks

Copies outcomes.json beside this file, draws the figure and fills README.md. Without a run it does
so from the outcomes.json that is here, for both runs. The verdicts follow plan.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from claims import SETS, THRESHOLDS, Judge, Outcomes, masks

from stockpot.charts import save
from stockpot.files import write_atomic
from stockpot.report.sections.scatter import scatter
from stockpot.results.groups import GroupMean, means_of
from stockpot.results.tables import fill, markdown, percent

HERE = Path(__file__).parent


def verdict_table(judge: Judge) -> str:
    """One verdict a claim."""
    rows = [(claim.name, claim.text, judge.verdict(claim)) for claim in judge.claims]
    return markdown(("claim", "as the paper has it", "verdict"), rows)


def part_table(judge: Judge) -> str:
    """Every part; of the many of M5 the smallest stand for all."""
    rows = []
    for claim in judge.claims:
        found = [(part, judge.judged(part)) for part in claim.parts]
        if claim.name == "M5":
            halves = (found[: len(THRESHOLDS)], found[len(THRESHOLDS) :])
            least = [min(half, key=lambda one: one[1].low) for half in halves]
            found = [(part._replace(text=f"smallest of {len(half)}: {part.text}"), said)
                     for (part, said), half in zip(least, halves, strict=True)]  # fmt: skip
        for part, said in found:
            rows.append((claim.name, part.text, f"{100 * part.margin:g}", str(said)))
    return markdown(("claim", "part", "margin", "points [95 %]"), rows)


def scores(judge: Judge) -> list[tuple[GroupMean, GroupMean]]:
    """Every model's mean inside and outside, the best outside first."""
    inside, outside = (means_of(judge.found, SETS[side]) for side in ("inside", "outside"))
    order = sorted(outside, key=lambda model: -outside[model].value)
    return [(inside[model], outside[model]) for model in order]


def score_table(judge: Judge) -> str:
    """Models by their mean outside; intervals over pictures and seeds as they were drawn."""
    sets = SETS["outside"]
    single = [means_of(judge.found, [each]) for each in sets]
    rows = [
        (place, f"`{inside.name}`",
         *(percent(side.value, *side.interval[:2]) for side in (inside, outside)),
         *(percent(each[inside.name].value) for each in single))
        for place, (inside, outside) in enumerate(scores(judge), start=1)
    ]  # fmt: skip
    return markdown(("point", "model", "inside", "outside", *sets), rows)


def mask_table(outcomes: Outcomes) -> str:
    """How much is masked at each threshold, of pictures and of objects."""
    kinds = ("picture", "object", "iou")
    tuned, start = masks(outcomes), outcomes["contexts"]["zero-shot"]["masks"]
    rows = [
        (t, *(f"{np.mean([run['masks'] for run in tuned[f'{kind} {t}'].values()]):.2f}"
              for kind in kinds),
         *(f"{np.mean(start[t][kind]):.2f}" for kind in kinds))
        for t in reversed(THRESHOLDS)
    ]  # fmt: skip
    heads = [f"`{model}`: {kind}" for model in ("object-single", "zero-shot")
             for kind in ("picture", "object", "IoU")]  # fmt: skip
    return markdown(("threshold", *heads), rows)


def chosen_table(outcomes: Outcomes) -> str:
    """What validation pictures inside chose, and how much masks covered in the end."""
    rows = []
    for name in ("drawings", "contexts"):
        given, said = outcomes[name], outcomes[name]["chosen"]
        tried = {key: ", ".join(f"{value}: {100 * score:.1f}" for value, score in found.items())
                 for key, found in said["validation"].items()}  # fmt: skip
        alphas = {f"alpha of {model}": alpha for model, alpha in said["alpha"].items()}
        picked = {"rate": said["lr"], "beta": said["beta"], **alphas}
        rows += [(name, key, value, tried.get(key, "as the first run"))
                 for key, value in picked.items()]  # fmt: skip
        for odd, coverage in enumerate(("0.39", "0.25")):
            runs = given["object-single"]
            ends = [run["coverage"] for seed, run in runs.items() if int(seed) % 2 == odd]
            rows.append((name, f"thresholds for {float(coverage):.0%}",
                         ", ".join(f"{kind} {said['thresholds'][kind][coverage]:.2f}"
                                   for kind in ("object", "context")),
                         f"covered after tuning: {100 * float(np.mean(ends)):.0f} %"))  # fmt: skip
    return markdown(("experiment", "setting", "chosen", "inside on validation"), rows)


def from_data(outcomes: Outcomes) -> dict[str, str]:
    """The places of README.md that follow from outcomes.json."""
    judge = Judge(outcomes)
    return {
        "seeds": str(judge.seeds),
        "verdicts": verdict_table(judge),
        "parts": part_table(judge),
        "drawings": score_table(judge),
        "masks": mask_table(outcomes),
        "chosen": chosen_table(outcomes),
    }


def figure(judge: Judge, folder: Path) -> None:
    """Inside against outside, numbered as in the table."""
    titles = "accuracy on drawings", "mean accuracy on photographs and icons"
    save(scatter(scores(judge), *titles), folder / "drawings.svg")


def main(arguments: Sequence[str]) -> None:
    """Copy outcomes.json, draw and fill."""
    if arguments:
        text = (Path(arguments[0]) / "outcomes.json").read_text(encoding="utf-8")
        write_atomic(HERE / "outcomes.json", text)
    for folder in (HERE, HERE / "first"):
        outcomes = json.loads((folder / "outcomes.json").read_text(encoding="utf-8"))
        figure(Judge(outcomes), folder)
        fill(folder / "README.md", from_data(outcomes))


if __name__ == "__main__":
    main(sys.argv[1:])
