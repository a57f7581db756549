"""Tables, figures and verdicts of counterfactual fine-tuning, from the run that `study.py` left.

    python studies/robust_finetuning/tables.py runs/masks

Copies outcomes.json beside this file, draws the figures and fills README.md. Without a run it does
so from the outcomes.json that is here. The verdicts follow plan.md.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from stockpot.charts import save
from stockpot.files import write_atomic
from stockpot.report.sections.scatter import scatter
from stockpot.results.contrast import (
    Contrast,
    Contrasts,
    Verdict,
    every_of,
    mean_contrast,
    minus,
    some_of,
    verdict,
)
from stockpot.results.groups import Answers, GroupMean, by_group, means_of
from stockpot.results.packed import unpack_bits, unpack_groups
from stockpot.results.tables import fill, markdown, percent

HERE = Path(__file__).parent
SETS = {
    "contexts": (["inside"], ["shuffled", "reversed", "family"]),
    "drawings": (["drawing"], ["photo", "icon"]),
}
"""What is inside and what is outside."""
FEWEST = 6
"""With fewer seeds nothing is judged."""
THRESHOLDS = ("0.2", "0.3", "0.4", "0.5", "0.6", "0.7")
Factors = Mapping[str, float]
Outcomes = Mapping[str, Any]
Found = dict[str, dict[str, Answers]]
"""By model and run."""


class Part(NamedTuple):
    """A difference that should lie above a margin."""

    text: str
    factors: Factors
    side: str
    """`inside`, `outside`, or `masks`."""
    margin: float = 0.0
    some: bool = False
    """Whether it is enough that one of the parts so marked does."""


class Claim(NamedTuple):
    """A row of plan.md."""

    name: str
    text: str
    parts: tuple[Part, ...]


def _helped(factor: float) -> dict[str, float]:
    """What WiSE-KD gains for vanilla, times a factor, less what it gains for object-single."""
    return {"wise-kd": factor, "vanilla": -factor, "object-wise-kd": -1, "object-single": 1}


def _masking() -> tuple[Part, ...]:
    more = [
        Part(f"object less picture at {t}", minus(f"object {t}", f"picture {t}"), "masks")
        for t in reversed(THRESHOLDS)
    ]
    falling = [
        Part(f"{kind} at {low} less at {high}", minus(f"{kind} {low}", f"{kind} {high}"), "masks")
        for kind in ("picture", "object")
        for low, high in zip(THRESHOLDS, THRESHOLDS[1:], strict=False)
    ]
    return (*more, *falling)


def _order(margin: float) -> tuple[Part, ...]:
    pairs = (("object-single", "random-single"), ("random-single", "context-single"))
    return tuple(
        Part(f"`{a}` less `{b}`, outside", minus(a, b), "outside", margin) for a, b in pairs
    )


CLAIMS = (
    Claim("M1", "tuning gains inside and falls below zero-shot outside", (
        Part("`vanilla` less `zero-shot`, inside", minus("vanilla", "zero-shot"), "inside"),
        Part("`zero-shot` less `vanilla`, outside", minus("zero-shot", "vanilla"), "outside"),
    )),
    Claim("M2", "holding features without masks recovers most of it", (
        Part("`no-mask` less the middle of `vanilla` and `zero-shot`, outside",
             minus("no-mask", ("vanilla", "zero-shot")), "outside"),
    )),
    Claim("M3", "fills beat no fill; single >= multi outside, multi >= single inside", (
        Part("fills less `object-none`, outside",
             minus(("object-single", "object-multi"), "object-none"), "outside"),
        Part("`object-single` less `object-multi`, outside",
             minus("object-single", "object-multi"), "outside", -0.01),
        Part("`object-multi` less `object-single`, inside",
             minus("object-multi", "object-single"), "inside", -0.01),
    )),
    Claim("M4", "object >= random >= context outside", _order(-0.01)),
    Claim("M5", "objects are masked more than pictures, both more as the threshold falls",
          _masking()),
    Claim("M6", "WiSE of the counterfactual model gains nothing on both sides, WiSE-FT does", (
        Part("`wise-ft` less `vanilla`, inside", minus("wise-ft", "vanilla"), "inside"),
        Part("`wise-ft` less `vanilla`, outside", minus("wise-ft", "vanilla"), "outside"),
        Part("`object-single` less `object-wise`, inside",
             minus("object-single", "object-wise"), "inside", -0.005, some=True),
        Part("or `object-single` less `object-wise`, outside",
             minus("object-single", "object-wise"), "outside", -0.005, some=True),
    )),
    Claim("M7", "WiSE-KD helps vanilla much, the counterfactual model little", (
        Part("`wise-kd` less `vanilla`, outside", minus("wise-kd", "vanilla"), "outside"),
        Part("that gain less the gain of `object-single`, outside", _helped(1), "outside"),
    )),
)  # fmt: skip
BESIDE = (
    Claim("masks", "masks add to holding features", (
        Part("`object-single` less `no-mask`, outside", minus("object-single", "no-mask"), "outside"),
    )),
    Claim("M4, strictly", "object > random > context outside", _order(0.0)),
    Claim("M7, strictly", "the counterfactual model gains less than half of what vanilla does", (
        Part("half of the gain of `vanilla` less that of `object-single`, outside", _helped(0.5),
             "outside"),
    )),
)  # fmt: skip


class Judged(NamedTuple):
    """A part with its 95 % intervals: of the mean, and of each experiment."""

    both: Contrast
    each: dict[str, Contrast]


class Judge:
    """Contrasts of a run, by the rule of plan.md."""

    def __init__(self, outcomes: Outcomes) -> None:
        self.seeds = len(outcomes["seeds"])
        self.found = {name: answers(outcomes, name) for name in SETS}
        self.contrasts = {name: Contrasts(found) for name, found in self.found.items()}
        self.masks = Contrasts(masks(outcomes))

    def widened(self, found: Contrast | None, confidence: float) -> Contrast:
        """Few seeds drawn anew show too little of their spread."""
        if found is None:
            raise ValueError("a model of the contrast has not answered all sets")
        n, place = self.seeds, 0.5 + confidence / 2
        factor = stdtrit(n - 1, place) / ndtri(place) * math.sqrt(n / (n - 1))
        value = found.value
        return Contrast(value, value - factor * (value - found.low),
                        value + factor * (found.high - value))  # fmt: skip

    def judged(self, part: Part, confidence: float = 0.95) -> Judged:
        """A part's intervals at this confidence."""
        if part.side == "masks":
            found = self.widened(self.masks.of(part.factors, ["masks"], confidence), confidence)
            return Judged(found, {"contexts": found})
        each = {}
        for name, (inside, outside) in SETS.items():
            sets = inside if part.side == "inside" else outside
            found = self.widened(
                self.contrasts[name].of(part.factors, sets, confidence), confidence
            )
            each[name] = found
        return Judged(mean_contrast(list(each.values())), each)

    def verdict(self, claim: Claim) -> Verdict:
        """What all parts together say."""
        if self.seeds < FEWEST:
            return "not told apart"
        together = [self._said(part, 1 - 0.05 / len(claim.parts)) for part in claim.parts]
        alone = [self._said(part, 0.95) for part in claim.parts]
        needed = [not part.some for part in claim.parts]
        said = [
            every_of([s for s, need in zip(together, needed, strict=True) if need],
                     [s for s, need in zip(alone, needed, strict=True) if need])
        ]  # fmt: skip
        if not all(needed):
            said.append(some_of([s for s, need in zip(together, needed, strict=True) if not need]))
        if "did not hold" in said:
            return "did not hold"
        return "held" if all(one == "held" for one in said) else "not told apart"

    def _said(self, part: Part, confidence: float) -> Verdict:
        both = self.judged(part, confidence).both
        return verdict(both.low, both.high, part.margin)


def answers(outcomes: Outcomes, name: str) -> Found:
    """Who was right, by model, seed and set; pictures of one concept are one number."""
    given = outcomes[name]

    def read(kept: Mapping[str, Any]) -> Answers:
        found = {}
        for key, about in given["sets"].items():
            flags = unpack_bits(kept["right"][key], about["n"]).astype(np.float32)
            groups = unpack_groups(about["groups"]) if about["groups"] else None
            found[key] = by_group(flags, groups)
        return found

    models = {
        model: {f"s{seed}": read(runs[str(seed)]) for seed in outcomes["seeds"]}
        for model, runs in given.items()
        if model not in ("chosen", "sets", "zero-shot")
    }
    return {"zero-shot": {"zero-shot": read(given["zero-shot"])}} | models


def masks(outcomes: Outcomes) -> Found:
    """Masked shares by concept of each seed's object-single, a name for each kind and threshold."""
    runs = outcomes["contexts"]["object-single"]
    return {
        f"{kind} {threshold}": {
            f"s{seed}": {"masks": np.asarray(runs[str(seed)]["masks"][threshold][kind], np.float32)}
            for seed in outcomes["seeds"]
        }
        for kind in ("picture", "object", "iou")
        for threshold in THRESHOLDS
    }


def verdict_table(judge: Judge) -> str:
    """One verdict a claim."""
    rows = [(claim.name, claim.text, judge.verdict(claim)) for claim in (*CLAIMS, *BESIDE)]
    return markdown(("claim", "as the paper has it", "verdict"), rows)


def part_table(judge: Judge) -> str:
    """Every part but those of M5, of which the smallest stands for all."""
    rows = []
    for claim in (*CLAIMS, *BESIDE):
        found = [(part, judge.judged(part)) for part in claim.parts]
        if claim.name == "M5":
            halves = (found[: len(THRESHOLDS)], found[len(THRESHOLDS) :])
            found = [min(half, key=lambda one: one[1].both.low) for half in halves]
            found = [(p._replace(text=f"smallest of {len(h)}: {p.text}"), j)
                     for (p, j), h in zip(found, halves, strict=True)]  # fmt: skip
        for part, said in found:
            margin = "0" if not part.margin else f"{100 * part.margin:g}"
            apart = [str(said.each.get(name, "")) for name in SETS]
            rows.append((claim.name, part.text, margin, str(said.both), *apart))
    columns = ("claim", "part", "margin", "mean of both [95 %]", *SETS)
    return markdown(columns, rows)


def scores(judge: Judge, name: str) -> list[tuple[GroupMean, GroupMean]]:
    """Every model's mean inside and outside, the best outside first."""
    inside, outside = (means_of(judge.found[name], sets) for sets in SETS[name])
    order = sorted(outside, key=lambda model: -outside[model].value)
    return [(inside[model], outside[model]) for model in order]


def score_table(judge: Judge, name: str) -> str:
    """Models by their mean outside; intervals over pictures and seeds as they were drawn."""
    sets = SETS[name][1]
    single = [means_of(judge.found[name], [each]) for each in sets]
    rows = [
        (place, f"`{inside.name}`",
         *(percent(side.value, side.interval.low, side.interval.high) for side in (inside, outside)),
         *(percent(each[inside.name].value) for each in single))
        for place, (inside, outside) in enumerate(scores(judge, name), start=1)
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
    for name in SETS:
        given, said = outcomes[name], outcomes[name]["chosen"]
        tried = {key: ", ".join(f"{value}: {100 * score:.1f}" for value, score in found.items())
                 for key, found in said["validation"].items()}  # fmt: skip
        picked = {"rate": said["lr"], "beta": said["beta"],
                  **{f"alpha of {model}": alpha for model, alpha in said["alpha"].items()}}  # fmt: skip
        rows += [(name, key, value, tried[key]) for key, value in picked.items()]
        for odd, coverage in enumerate(("0.39", "0.25")):
            runs = given["object-single"]
            ends = [runs[str(seed)]["coverage"] for seed in outcomes["seeds"] if seed % 2 == odd]
            rows.append((name, f"thresholds for {float(coverage):.0%}",
                         ", ".join(f"{kind} {said['thresholds'][kind][coverage]:.2f}"
                                   for kind in ("object", "context")),
                         f"covered after tuning: {100 * float(np.mean(ends)):.0f} %"))  # fmt: skip
    return markdown(("experiment", "setting", "chosen", "inside on validation"), rows)


def from_data(outcomes: Outcomes) -> dict[str, str]:
    """The places of README.md that follow from outcomes.json."""
    judge = Judge(outcomes)
    return {
        "verdicts": verdict_table(judge),
        "parts": part_table(judge),
        **{name: score_table(judge, name) for name in SETS},
        "masks": mask_table(outcomes),
        "chosen": chosen_table(outcomes),
    }


def figures(judge: Judge) -> None:
    """Inside against outside, numbered as in the tables."""
    for name, (inside, outside) in SETS.items():
        titles = ", ".join(inside), ", ".join(outside)
        chart = scatter(scores(judge, name), f"accuracy on {titles[0]}",
                        f"mean accuracy on {titles[1]}")  # fmt: skip
        save(chart, HERE / f"{name}.svg")


def main(arguments: Sequence[str]) -> None:
    """Copy outcomes.json, draw and fill."""
    if arguments:
        text = (Path(arguments[0]) / "outcomes.json").read_text(encoding="utf-8")
        write_atomic(HERE / "outcomes.json", text)
    outcomes = json.loads((HERE / "outcomes.json").read_text(encoding="utf-8"))
    figures(Judge(outcomes))
    fill(HERE / "README.md", from_data(outcomes))


if __name__ == "__main__":
    main(sys.argv[1:])
