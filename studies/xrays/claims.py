"""The claims of plan.md as contrasts, and the rule that judges them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stockpot.results.contrast import Contrast, Contrasts, Verdict, every_of, minus, verdict
from stockpot.results.few_seeds import widened
from stockpot.results.groups import Answers, by_group
from stockpot.results.packed import unpack_bits, unpack_groups

FEWEST = 6
"""With fewer seeds nothing is judged."""
LEVEL = -0.03
"""Equal means not worse by more than this, on either side."""
KINDS = ("iou", "covered")
Outcomes = Mapping[str, Any]
Found = dict[str, dict[str, Answers]]
"""By model and run."""


class Part(NamedTuple):
    """A difference that should lie above a margin."""

    text: str
    factors: Mapping[str, float]
    data: str
    """A set of pictures, or `iou`."""
    margin: float = 0.0


class Claim(NamedTuple):
    """A row of plan.md."""

    name: str
    text: str
    parts: tuple[Part, ...]


def _over(other: str) -> tuple[Part, ...]:
    return tuple(
        Part(f"`{model}` less {other}", minus(model, other), "iou")
        for model in ("start", "vanilla", "relevance")
    )


def _less(first: str, second: str, data: str, margin: float = 0.0) -> Part:
    return Part(f"`{first}` less `{second}`, {data}", minus(first, second), data, margin)


CLAIMS = (
    Claim("O1", "relevance lies on the lungs more than random masks of equal size do",
          _over("random mask")),
    Claim("O2", "and more than a blob in the middle", _over("centred blob")),
    Claim("O3", "it goes at least half of the way from random masks to true ones", (
        Part("`relevance` less the middle of random mask and true cells",
             minus("relevance", ("random mask", "true cells")), "iou"),
    )),
    Claim("O4", "tuning with true masks draws relevance onto the lungs", (
        Part("`truth` less `vanilla`", minus("truth", "vanilla"), "iou"),
    )),
    Claim("T1", "tuning gains inside and loses where the outside is another's", (
        _less("vanilla", "start", "inside"), _less("start", "vanilla", "swapped"),
    )),
    Claim("T2", "holding features without masks recovers most of it", (
        Part("`no-mask` less the middle of `vanilla` and `start`, swapped",
             minus("no-mask", ("vanilla", "start")), "swapped"),
    )),
    Claim("T3", "tuning with masks by relevance equals tuning with true masks", tuple(
        _less(*pair, data, LEVEL)
        for data in ("inside", "swapped")
        for pair in (("truth", "relevance"), ("relevance", "truth"))
    )),
    Claim("T4", "true masks are better where the outside is another's", (
        _less("truth", "relevance", "swapped"),
    )),
    Claim("T5", "masks by relevance are better than random ones", (
        _less("relevance", "random", "swapped"),
    )),
    Claim("T6", "true masks are better than random ones", (_less("truth", "random", "swapped"),)),
    Claim("T7", "masks of the lungs add to holding features", (
        Part("`relevance` and `truth` less `no-mask`, swapped",
             minus(("relevance", "truth"), "no-mask"), "swapped"),
    )),
)  # fmt: skip


class Judge:
    """Contrasts of the run, by the rule of plan.md."""

    def __init__(self, outcomes: Outcomes) -> None:
        self.found = answers(outcomes)
        self.contrasts = Contrasts(self.found)
        self.seeds = len(outcomes["seeds"])

    def judged(self, part: Part, confidence: float = 0.95) -> Contrast:
        """A part with its interval; few seeds drawn anew show too little of their spread."""
        found = self.contrasts.of(part.factors, [part.data], confidence)
        if found is None:
            raise ValueError("a model of the contrast has not answered")
        return widened(found, self.seeds, confidence)

    def verdict(self, claim: Claim) -> Verdict:
        """What all parts together say."""
        if self.seeds < FEWEST:
            return "not told apart"
        together = [self._said(part, 1 - 0.05 / len(claim.parts)) for part in claim.parts]
        return every_of(together, [self._said(part, 0.95) for part in claim.parts])

    def _said(self, part: Part, confidence: float) -> Verdict:
        found = self.judged(part, confidence)
        return verdict(found.low, found.high, part.margin)


def answers(outcomes: Outcomes) -> Found:
    """Who was right, and how masks lie on lungs; pictures of one patient are one number."""
    groups = unpack_groups(outcomes["patients"])

    def read(kept: Mapping[str, Any]) -> Answers:
        found = {
            key: by_group(unpack_bits(flags, outcomes["n"]).astype(np.float32), groups)
            for key, flags in kept.get("right", {}).items()
        }
        masks = kept.get("masks", {})
        return found | {kind: by_group(shares(masks[kind]), groups) for kind in KINDS if masks}

    once = {"start": outcomes["start"]} | {
        name: {"masks": masks} for name, masks in outcomes["baselines"].items()
    }
    models = {
        model: {f"s{seed}": read(runs[str(seed)]) for seed in outcomes["seeds"]}
        for model, runs in outcomes["models"].items()
    }
    return {name: {name: read(kept)} for name, kept in once.items()} | models


def shares(text: str) -> NDArray[np.float32]:
    """Ten-thousandths as they were written."""
    return np.asarray([int(number) for number in text.split()], np.float32) / 10_000
