"""When a claim counts as held: differences over images and seeds, and a rule on intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stockpot.results.contrast import Verdict
from stockpot.results.few_seeds import Difference, several_said

MARGINS = {
    "F1": -0.02, "F4": -0.005, "F4, again": -0.005, "F4, strong": -0.005, "F5": -0.005,
    "F5, again": -0.005, "F5, strong": -0.005, "F6, clean": -0.005, "F7": -0.01, "F10": 0.1,
}  # fmt: skip
"""What a difference must exceed; 0 where nothing is said. F8 counts weights, the others shares."""


class Finding(NamedTuple):
    """A claim, what was found, and the verdict."""

    claim: str
    parts: tuple[Difference, ...]
    verdict: Verdict


def single(claim: str, part: Difference) -> Finding:
    return Finding(claim, (part,), part.said(MARGINS.get(claim, 0.0)))


def several(claim: str, parts: Sequence[Difference], *, every: bool) -> Finding:
    said = several_said(parts, MARGINS.get(claim, 0.0), every=every)
    return Finding(claim, tuple(parts), said)
