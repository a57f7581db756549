"""The claims of plan.md as contrasts, and the rule that judges them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from stockpot.results.contrast import (
    Contrast,
    Contrasts,
    Verdict,
    every_of,
    minus,
    some_of,
    verdict,
)
from stockpot.results.few_seeds import widened
from stockpot.results.groups import Answers, by_group
from stockpot.results.packed import unpack_bits, unpack_groups

SETS = {"inside": ["drawing"], "outside": ["photo", "icon"], "masks": ["masks"]}
"""What is judged on each side; `masks` are the pictures of the contexts."""
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
        for low, high in pairwise(THRESHOLDS)
    ]
    return (*more, *falling)


def _order(margin: float) -> tuple[Part, ...]:
    pairs = (("object-single", "random-single"), ("random-single", "context-single"))
    return tuple(
        Part(f"`{a}` less `{b}`, outside", minus(a, b), "outside", margin) for a, b in pairs
    )


def _wise(end: str) -> tuple[Part, ...]:
    plain, ours = f"wise-ft{end}", f"object-wise{end}"
    gains, keeps = minus(plain, "vanilla"), minus("object-single", ours)
    return (
        Part(f"`{plain}` less `vanilla`, inside", gains, "inside"),
        Part(f"`{plain}` less `vanilla`, outside", gains, "outside"),
        Part(f"`object-single` less `{ours}`, inside", keeps, "inside", -0.005, some=True),
        Part(f"or `object-single` less `{ours}`, outside", keeps, "outside", -0.005, some=True),
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
    Claim("M6", "WiSE of the counterfactual model gains nothing on both sides, WiSE-FT does",
          _wise("")),
    Claim("M7", "WiSE-KD helps vanilla much, the counterfactual model little", (
        Part("`wise-kd` less `vanilla`, outside", minus("wise-kd", "vanilla"), "outside"),
        Part("that gain less the gain of `object-single`, outside", _helped(1), "outside"),
    )),
)  # fmt: skip
BESIDE = (
    Claim("M6, alpha chosen", "the same with the smallest alpha that is level with the best inside",
          _wise("-level")),
    Claim("masks", "masks add to holding features", (
        Part("`object-single` less `no-mask`, outside", minus("object-single", "no-mask"),
             "outside"),
    )),
    Claim("M4, strictly", "object > random > context outside", _order(0.0)),
    Claim("M7, strictly", "the counterfactual model gains less than half of what vanilla does", (
        Part("half of the gain of `vanilla` less that of `object-single`, outside", _helped(0.5),
             "outside"),
    )),
)  # fmt: skip


class Judge:
    """Contrasts of a run, by the rule of plan.md."""

    def __init__(self, outcomes: Outcomes) -> None:
        self.found, covered = answers(outcomes), masks(outcomes)
        self.contrasts = Contrasts(self.found | covered)
        self.claims = [
            claim
            for claim in (*CLAIMS, *BESIDE)
            if {name for part in claim.parts for name in part.factors} <= {*self.found, *covered}
        ]
        """The first run has not all that stand beside."""
        self.seeds = len(outcomes["seeds"])
        self.mask_seeds = len(outcomes["contexts"]["object-single"])

    def of(self, side: str) -> int:
        """The seeds of a side."""
        return self.mask_seeds if side == "masks" else self.seeds

    def judged(self, part: Part, confidence: float = 0.95) -> Contrast:
        """A part with its interval; few seeds drawn anew show too little of their spread."""
        found = self.contrasts.of(part.factors, SETS[part.side], confidence)
        if found is None:
            raise ValueError("a model of the contrast has not answered all sets")
        return widened(found, self.of(part.side), confidence)

    def verdict(self, claim: Claim) -> Verdict:
        """What all parts together say."""
        if min(self.of(part.side) for part in claim.parts) < FEWEST:
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
        found = self.judged(part, confidence)
        return verdict(found.low, found.high, part.margin)


def answers(outcomes: Outcomes) -> Found:
    """Who was right, by model, seed and set; pictures of one concept are one number."""
    given = outcomes["drawings"]

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
            f"s{seed}": {"masks": np.asarray(run["masks"][threshold][kind], np.float32)}
            for seed, run in runs.items()
        }
        for kind in ("picture", "object", "iou")
        for threshold in THRESHOLDS
    }
