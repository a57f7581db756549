"""The claims of plan.md over several trainings, as it was added there before the further ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from claims import AUROC_OF, CLAIMS, RESAMPLES, Claim, Paired, Part, Row, number_of, parts_of
from measured import FRESH_SETS, Arrays
from numpy.typing import NDArray
from study import SETS

from stockpot.results.contrast import Contrast, Verdict
from stockpot.results.few_seeds import Difference, Drawn, drawn_mean, over_draws, several_said
from stockpot.results.resamples import image_counts
from stockpot.results.tables import markdown
from trainings import each, in_order, several

TRAINING = "training "
"""Begins the name of a column with the number of one training."""
HALF = (12, 13, 14)
"""Claims about the half of the images that nothing was fitted on."""


def own_auroc(scores: NDArray[Any], right: NDArray[np.bool_], resamples: int) -> Drawn:
    """AUROC of right against wrong answers; images are drawn whatever the answer to them is.

    Each training errs on other images: drawn by answer, their draws would not be the same.
    """
    order = np.argsort(scores, kind="stable")
    ranked, good = scores[order], right[order].astype(np.float64)
    starts = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]]))

    def area(counts: NDArray[Any]) -> NDArray[np.float64]:
        drawn = counts[:, order].astype(np.float64)
        ins, outs = (np.add.reduceat(drawn * kind, starts, axis=1) for kind in (good, 1 - good))
        below = np.cumsum(outs, axis=1) - outs / 2
        found: NDArray[np.float64] = (ins * below).sum(1) / (ins.sum(1) * outs.sum(1))
        return found

    parts = [area(counts) for counts in image_counts(len(scores), seed=0, resamples=resamples)]
    once = area(np.ones((1, len(scores))))
    return Drawn(float(once[0]), np.concatenate(parts))


def drawn(part: Part, resamples: int) -> Drawn:
    """A number of a claim in every draw."""
    if isinstance(part, Paired):
        return drawn_mean(part.first - part.second, resamples=resamples)
    return part


def images(claim: int, of: str, kept: Arrays) -> dict[str, int]:
    """How many images of both kinds a number is from; `kept` is of any network."""
    inside = len(kept["nll" if claim in HALF else "correct"])
    if claim not in AUROC_OF:
        return {"n": inside}
    names = [held for held in FRESH_SETS if of in (SETS[held], *AUROC_OF[claim])]
    return {"n": inside, "n outside": sum(len(kept[f"{held}/msp"]) for held in names)}


def training_rows(
    found: Mapping[str, Mapping[str, Arrays]], resamples: int = RESAMPLES
) -> list[dict[str, Any]]:
    """A row for each number: over trainings and images, and each training's own."""
    numbers = in_order(found)
    parts = [
        parts_of(found[n], resamples, lambda scores, right: own_auroc(scores, right, resamples))
        for n in numbers
    ]
    rows = []
    for claim, own in parts[0].items():
        for of in own:
            runs = [drawn(one[claim][of], resamples) for one in parts]
            over = over_draws(runs, of=len(own))
            ends = {
                "value": over.alone.value, "low": over.alone.low, "high": over.alone.high,
                "low together": over.together.low, "high together": over.together.high,
                **{f"{TRAINING}{n}": v for n, v in zip(numbers, over.each, strict=True)},
            }  # fmt: skip
            counted = images(claim, of, next(iter(found[numbers[0]].values())))
            shown = {key: round(value, 4) for key, value in ends.items()}
            rows.append({"claim": claim, "of": of, **counted, **shown})
    return rows


def difference(row: Row) -> Difference:
    """What a row says."""
    return Difference(
        Contrast(row["value"], row["low"], row["high"]),
        Contrast(row["value"], row["low together"], row["high together"]),
        tuple(value for key, value in row.items() if key.startswith(TRAINING)),
    )


def judged_again(claim: Claim, rows: Sequence[Row]) -> Verdict:
    """The rule that was added to the plan."""
    found = [difference(row) for row in rows]
    if not claim.alike:
        return several_said(found, claim.margin, every=True)
    together = [one.said_alike(claim.margin, together=True) for one in found]
    if "did not hold" in together:
        return "did not hold"
    held = all(one.said_alike(claim.margin) == "held" for one in found)
    return "held" if held else "not told apart"


def trainings_table(rows: Sequence[Row]) -> str:
    """A line for each claim; what single trainings say stands in brackets, the zoo's first."""
    lines = []
    for number, claim in CLAIMS.items():
        own = [row for row in rows if row["claim"] == number]
        if not own:
            lines.append((f"{number} {claim.words}", "", "", "", "not measured"))
            continue
        factor, digits = (100, 1) if claim.unit == "points" else (1, 3)
        parts = "; ".join(
            f"{row['of']} {number_of(claim, row)} ({each(difference(row).each, factor, digits)})"
            for row in own
        )
        count = len(difference(own[0]).each)
        said = judged_again(claim, own)
        lines.append((f"{number} {claim.words}", parts, _images(own), count, said))
    columns = ("claim", "found [95 %] (each training)", "images", "trainings", "verdict")
    return several(len(difference(rows[0]).each) if rows else 0, markdown(columns, lines))


def _images(rows: Sequence[Row]) -> str:
    """How many, and the fewest of foreign ones."""
    outside = [int(row["n outside"]) for row in rows if row.get("n outside")]
    inside = f"{int(rows[0]['n']):,}"
    return f"{inside} and {min(outside):,}" if outside else inside
