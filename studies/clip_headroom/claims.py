"""What is claimed of the pools with headroom, and what their answers say of it by plan.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from answers import Answers
from merges import LAYER
from scipy.special import ndtri

from stockpot.results.contrast import Contrast
from stockpot.results.few_seeds import Difference, over_seeds, several_said
from stockpot.results.tables import markdown

THERE, ELSEWHERE = f"{LAYER}|there", f"{LAYER}|elsewhere"
"""Layer-wise AdaMerging on three corruptions: adapted to each, and adapted on clean images."""


class Claim(NamedTuple):
    """Pairs of models, the first less the second, each of which must exceed the margin."""

    name: str
    pairs: Sequence[tuple[str, str]]
    margin: float = 0.0
    spread: float = 0.0
    """The standard deviation between trainings that is lent to a difference which rests on one."""


CLAIMS = (
    Claim("H1 averaging beats the base", [("average", "base")]),
    Claim("H2 task arithmetic beats the average", [("task_arithmetic", "average")]),
    Claim("H3 TIES beats task arithmetic", [("ties", "task_arithmetic")]),
    Claim("H4 RegMean beats TIES", [("regmean", "ties")]),
    Claim("H5 layer-wise AdaMerging beats RegMean", [(LAYER, "regmean")]),
    Claim("H6 WEMoE beats layer-wise AdaMerging", [("wemoe", LAYER)]),
    Claim("H7 WEMoE comes near the experts (3 points)", [("wemoe", "experts")], -0.03),
    Claim("H8 singular vectors beat sums of changes",
          [("tsv_m", "task_arithmetic"), ("iso_c", "task_arithmetic")]),
    Claim("H9 joint training beats merging",
          [("joint", name) for name in ("regmean", LAYER, "tsv_m", "iso_c")]),
    Claim("H2, tuned: task arithmetic beats the average", [("task_arithmetic|tuned", "average")]),
    Claim("H3, tuned: TIES beats task arithmetic", [("ties|tuned", "task_arithmetic|tuned")]),
    Claim("H8, tuned: singular vectors beat sums of changes",
          [("tsv_m|tuned", "task_arithmetic|tuned"), ("iso_c|tuned", "task_arithmetic|tuned")]),
    Claim("H10 merging helps tasks that no expert saw",
          [("task_arithmetic|unseen", "base|unseen")]),
    Claim("H11 under corruption task arithmetic keeps its lead over the base",
          [("task_arithmetic|corrupted", "base|corrupted")], spread=0.017),
    Claim("H12 under corruption layer-wise AdaMerging keeps its lead over task arithmetic",
          [(f"{LAYER}|corrupted", "task_arithmetic|corrupted")]),
    Claim("H13 under corruption adapting on the corrupted images beats adapting on clean ones",
          [(THERE, ELSEWHERE)], spread=0.012),
)  # fmt: skip
AT_SECOND = (
    Claim("H1 at a second size: averaging beats the base", [("average", "base")], spread=0.013),
    Claim("H4 at a second size: RegMean beats TIES", [("regmean", "ties")], spread=0.013),
    Claim("H8 at a second size: singular vectors beat sums of changes",
          [("tsv_m", "task_arithmetic"), ("iso_c", "task_arithmetic")], spread=0.013),
    Claim("H11 at a second size: task arithmetic keeps its lead over the base",
          [("task_arithmetic|corrupted", "base|corrupted")], spread=0.017),
)  # fmt: skip


def judged(claim: Claim, found: Sequence[Answers]) -> tuple[list[Difference], int]:
    """The differences of a claim, and on how many seeds they rest."""
    names = {name for pair in claim.pairs for name in pair}
    whole = [of for of in found if names <= of.keys()]
    if not whole:
        return [], 0
    count = len(claim.pairs)
    parts = [over_seeds([(of[a], of[b]) for of in whole], count) for a, b in claim.pairs]
    if len(whole) == 1:
        parts = [lent(part, claim.spread, count) for part in parts]
    return parts, len(whole)


def lent(found: Difference, spread: float, of: int) -> Difference:
    """A difference of one training, as wide as if trainings spread by so much.

    Args:
        found: one of several differences, its intervals over images alone.
        spread: the standard deviation between trainings.
        of: how many differences are judged together.
    """

    def wider(one: Contrast, outside: float) -> Contrast:
        more = float(ndtri(1 - outside / 2)) * spread
        low, high = math.hypot(one.value - one.low, more), math.hypot(one.high - one.value, more)
        return Contrast(one.value, one.value - low, one.value + high)

    alone, together = wider(found.alone, 0.05), wider(found.together, 0.05 / of)
    return found._replace(alone=alone, together=together)


def claims(found: Sequence[Answers], second: Sequence[Answers]) -> str:
    judgements = [(claim, *judged(claim, found)) for claim in CLAIMS]
    judgements += [(claim, *judged(claim, second)) for claim in AT_SECOND]
    body = []
    for claim, parts, count in judgements:
        shown = [str(part.alone) for part in parts]
        if len(shown) > 1:
            firsts = [named(a) for a, _ in claim.pairs]
            if len(set(firsts)) == 1:
                firsts = [f"over {named(b)}" for _, b in claim.pairs]
            shown = [f"{name} {text}" for name, text in zip(firsts, shown, strict=True)]
        said = several_said(parts, claim.margin, every=True) if parts else "not run yet"
        each = "; ".join(" ".join(f"{100 * v:+.1f}" for v in part.each) for part in parts)
        body.append([claim.name, "; ".join(shown), each, str(count), said])
    return markdown(["claim", "points [95 %]", "each seed", "seeds", "verdict"], body)


def named(model: str) -> str:
    return model.partition("|")[0]
