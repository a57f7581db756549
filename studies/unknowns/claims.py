"""The claims of plan.md: their numbers from what was answered, and verdicts from the numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from measured import ALPHA, FRESH_SETS, SETS_BY, Arrays
from numpy.typing import NDArray
from study import MODELS, SETS

from stockpot.measure.unknown.detection import METRICS, Sample, detection
from stockpot.results.contrast import Contrast, Verdict, every_of, paired, verdict
from stockpot.results.few_seeds import Drawn

RESAMPLES = 2000
AUROC = METRICS.index("auroc")
Floats = NDArray[np.float64]
Row = Mapping[str, Any]
ROBUST = ("l2", "linf")
AUROC_OF: Mapping[int, tuple[str, ...]] = {
    **dict.fromkeys((1, 2, 5, 6), ()), **dict.fromkeys((3, 4, 7), ("mean",)), 8: ROBUST, 9: ROBUST,
}  # fmt: skip
"""Claims about foreign sets: numbers that are of all sets together; the others are of one each."""


class Paired(NamedTuple):
    """Two numbers of every image, of which the first's mean less the second's is asked."""

    first: Floats
    second: Floats

    def interval(self, confidence: float) -> Contrast:
        """The difference with its interval."""
        return paired(self.first, self.second, confidence=confidence)


Part = Drawn | Paired
"""A number of a claim; both kinds have its interval at the confidence that is asked for."""


class Claim(NamedTuple):
    """A row of the plan."""

    words: str
    margin: float
    alike: bool = False
    """Whether the claim is that all lie within the margin; else, that all lie above it."""
    unit: str = "points"


CLAIMS = {
    1: Claim("ViM is better than MSP on far sets", 0),
    2: Claim("nearest neighbours are better than MSP on far sets", 0),
    3: Claim("ViM is better than nearest neighbours on far sets", 0),
    4: Claim("energy is better than MSP", 0),
    5: Claim("strictly: on every set", 0),
    6: Claim("the highest logit does what energy does", 0.01, alike=True),
    7: Claim("ASH is better than energy", 0),
    8: Claim("robust training makes detection by confidence worse", 0),
    9: Claim("detection by features suffers less from it (ours)", 0),
    10: Claim("for its own mistakes, MSP is better than what finds foreign images", 0),
    11: Claim("networks are too sure, robust ones less so", 0),
    12: Claim("one temperature mends it", 0, unit="nats"),
    13: Claim("sets hold the right class as often as promised", 0.025, alike=True),
    14: Claim("the sets of LAC are smaller than those of APS", 0, unit="classes"),
}


Own = Callable[[Floats, NDArray[np.bool_]], Drawn]
"""How well scores tell a network's right answers from its wrong ones."""


def parts_of(
    found: Mapping[str, Arrays], resamples: int = RESAMPLES, own_auroc: Own | None = None
) -> dict[int, dict[str, Part]]:
    """The numbers of every claim, by what they are of."""
    tell = own_auroc or (
        lambda scores, right: _auroc(Sample(scores[right]), Sample(scores[~right]), 0, resamples)
    )
    aurocs: dict[tuple[str, str, str], Drawn] = {}

    def auroc(model: str, name: str, held: str) -> Drawn:
        key = model, name, held
        if key not in aurocs:
            kept, place = found[model], list(FRESH_SETS).index(held)
            both = Sample(kept[f"inside/{name}"]), Sample(kept[f"{held}/{name}"])
            aurocs[key] = _auroc(*both, place, resamples)
        return aurocs[key]

    def mean(model: str, name: str) -> Drawn:
        each = [auroc(model, name, held) for held in FRESH_SETS]
        values, draws = [one.value for one in each], [one.draws for one in each]
        return Drawn(float(np.mean(values)), np.mean(draws, axis=0))

    def own(model: str, name: str) -> Drawn:
        return tell(found[model][f"inside/{name}"], found[model]["correct"])

    def sets(first: str, second: str) -> dict[str, Part]:
        return {
            SETS[held]: auroc("nominal", first, held) - auroc("nominal", second, held)
            for held in FRESH_SETS
        }

    def means(first: str, second: str) -> dict[str, Part]:
        return {"mean": mean("nominal", first) - mean("nominal", second)}

    def lost(name: str, model: str) -> Drawn:
        return mean("nominal", name) - mean(model, name)

    def sure(model: str) -> Floats:
        kept = found[model]
        gaps: Floats = kept["confidence"] - kept["correct"]
        return gaps

    return {
        1: sets("vim", "msp"),
        2: sets("knn", "msp"),
        3: means("vim", "knn"),
        4: means("energy", "msp"),
        5: sets("energy", "msp"),
        6: sets("energy", "max_logit"),
        7: means("ash_s", "energy"),
        8: {model: lost("msp", model) for model in ROBUST},
        9: {model: lost("msp", model) - lost("vim", model) for model in ROBUST},
        10: {f"{model}, {name}": own(model, "msp") - own(model, name)
             for model in MODELS for name in ("vim", "knn")},
        11: {"nominal": _paired(sure("nominal"), 0.0)}
        | {f"nominal less {model}": _paired(sure("nominal"), sure(model)) for model in ROBUST},
        12: {model: _paired(found[model]["nll"], found[model]["nll_scaled"]) for model in MODELS},
        13: {f"{model}, {name}": _paired(found[model][f"covered_{name}"], 1 - ALPHA)
             for model in MODELS for name in SETS_BY},
        14: {model: _paired(found[model]["size_aps"], found[model]["size_lac"])
             for model in MODELS},
    }  # fmt: skip


def _auroc(inside: Sample, outside: Sample, place: int, resamples: int) -> Drawn:
    found = detection(inside, outside, seed=0, place=place, resamples=resamples)
    return Drawn(found.values["auroc"], found.drawn[:, AUROC])


def _paired(first: NDArray[Any], second: NDArray[Any] | float) -> Part:
    one = np.asarray(first, np.float64)
    other = np.broadcast_to(np.asarray(second, np.float64), one.shape)
    return Paired(one, other)


def claim_rows(found: Mapping[str, Arrays], resamples: int = RESAMPLES) -> list[dict[str, Any]]:
    """A row for each number: its 95 % interval, and that which is 95 % for all of its claim."""
    rows = []
    for number, parts in parts_of(found, resamples).items():
        for name, part in parts.items():
            alone, together = part.interval(0.95), part.interval(1 - 0.05 / len(parts))
            rows.append({
                "claim": number, "of": name,
                **{key: round(value, 4) for key, value in (
                    ("value", alone.value), ("low", alone.low), ("high", alone.high),
                    ("low together", together.low), ("high together", together.high),
                )},
            })  # fmt: skip
    return rows


def judged(claim: Claim, rows: Sequence[Row]) -> Verdict:
    """The rule of the plan."""
    alone = [(row["low"], row["high"]) for row in rows]
    together = [(row["low together"], row["high together"]) for row in rows]
    if not claim.alike:
        said = [[verdict(*ends, claim.margin) for ends in kind] for kind in (together, alone)]
        return every_of(*said)
    outside = any(low > claim.margin or high < -claim.margin for low, high in together)
    within = all(-claim.margin < low and high < claim.margin for low, high in alone)
    return "did not hold" if outside else "held" if within else "not told apart"


def shown(claim: Claim, rows: Sequence[Row]) -> str:
    """The numbers of a claim with their intervals."""
    return "; ".join(f"{row['of']} {number_of(claim, row)}" for row in rows)


def number_of(claim: Claim, row: Row) -> str:
    """A number with its interval and its unit."""
    if claim.unit == "points":
        return str(Contrast(row["value"], row["low"], row["high"]))
    return f"{row['value']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}] {claim.unit}"
