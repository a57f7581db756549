"""Tables and verdicts of networks trained apart, from the run that `study.py` left.

    python studies/trained_apart/tables.py [runs/trained_apart]

Gathers the outcomes of the pairs into outcomes.json here, and fills README.md from it and
from first.json and again.json, which hold the first run and its seeds again. Without a run it fills
from what lies here. Verdicts follow plan.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from study import MEMBERS

from stockpot.files import write_atomic
from stockpot.results.contrast import Contrast, Contrasts, paired, verdict
from stockpot.results.few_seeds import Difference, over_seeds
from stockpot.results.packed import unpack_bits
from stockpot.results.statistics import share_interval
from stockpot.results.tables import fill, markdown, percent

HERE = Path(__file__).parent
ORDER = (*MEMBERS, "ensemble", "average as it is", "average", "permuted", "zipit", "zipit chosen",
         "pleas", "pleas chosen")  # fmt: skip
LITTLE = -0.01


class Claim(NamedTuple):
    """One model less another exceeds a margin; without names: the best merge, the worse member."""

    text: str
    first: str = ""
    second: str = ""
    margin: float = 0.0


CLAIMS = (
    Claim("1 a permutation mends the average", "permuted", "average"),
    Claim("2 joining units beats a permutation", "zipit chosen", "permuted"),
    Claim("3 least squares beats a permutation", "pleas chosen", "permuted"),
    Claim("4 defaults do as well as chosen settings", "pleas", "pleas chosen", LITTLE),
    Claim("5 the best merge is as good as the worse member", margin=LITTLE),
)
Pair = Mapping[str, Any]
Flags = NDArray[np.float64]


def right(pair: Pair, model: str) -> Flags:
    """On which images a model was right."""
    return unpack_bits(pair["right"][model], pair["n"]).astype(np.float64)


def sides(claim: Claim, pair: Pair) -> tuple[str, str]:
    """The two models that a claim compares; those of claim 5 are chosen on validation images."""
    if claim.first:
        return claim.first, claim.second
    merges, members = (pair["validation"].get(of) for of in ("merges", "members"))
    if members is None:  # the first run, where the test images said which member is worse
        members = {name: right(pair, name).mean() for name in MEMBERS}
    return max(merges, key=lambda name: merges[name]), min(members, key=lambda name: members[name])


def over(pairs: Sequence[Pair], names: Sequence[tuple[str, str]]) -> Difference:
    """One model less another, over pairs and images."""
    return over_seeds(
        [
            ({"test": right(pair, a)}, {"test": right(pair, b)})
            for pair, (a, b) in zip(pairs, names, strict=True)
        ]
    )


def settings(pair: Pair, name: str) -> str:
    chosen = pair["chosen"].get(name, {})
    return ", ".join(f"{key} {value}" for key, value in chosen.items() if value != 1e9)


def mean_accuracy(pairs: Sequence[Pair], name: str) -> Contrast:
    """Over pairs and images, drawn anew together as differences are."""
    answers = {str(number): {"test": right(pair, name).astype(np.float32)}
               for number, pair in enumerate(pairs)}  # fmt: skip
    found = Contrasts({name: answers}).of({name: 1.0}, ["test"])
    assert found is not None
    return found


def judged(pairs: Sequence[Pair]) -> list[tuple[Claim, Difference]]:
    return [(claim, over(pairs, [sides(claim, pair) for pair in pairs])) for claim in CLAIMS]


def several(pairs: Mapping[str, Pair]) -> dict[str, str]:
    """The tables of the pairs that are judged."""
    own = list(pairs.values())
    rows = []
    for name in ORDER:
        each = " ".join(f"{100 * right(pair, name).mean():.1f}" for pair in own)
        less = "" if name == "permuted" else str(over(own, [(name, "permuted")] * len(own)).alone)
        rows.append((f"`{name}`", percent(*mean_accuracy(own, name)), each, less))
    claims = [
        (claim.text, str(found.alone), " ".join(f"{100 * v:+.1f}" for v in found.each),
         len(own), found.said(claim.margin))
        for claim, found in judged(own)
    ]  # fmt: skip
    chosen = [
        (name, *(settings(pair, model) for model in own[0]["chosen"]),
         *(f"`{side}`" for side in sides(CLAIMS[-1], pair)))
        for name, pair in pairs.items()
    ]  # fmt: skip
    # All pairs must lie on one side, which binds more than the interval does.
    factor = NormalDist().inv_cdf(0.8 ** (1 / len(own)))
    spread = [float(np.std(found.each, ddof=1)) for _, found in judged(own)]
    return {
        "told": (
            f"Percent, {len(own)} pairs of trainings, {own[0]['n']:,} test images; 95 % intervals "
            "over pairs and images, drawn anew together."
        ),
        "accuracy": markdown(("model", "accuracy", "each pair", "less `permuted`"), rows),
        "claims": markdown(("claim", "points [95 %]", "each pair", "pairs", "verdict"), claims),
        "chosen": markdown(
            ("seeds", *(f"`{name}`" for name in own[0]["chosen"]), "best merge", "worse member"),
            chosen,
        ),
        "spread": (
            "Single pairs spread, images included, by "
            f"{_listed(spread)} points (claims 1 to {len(spread)}; standard deviations). With that "
            f"spread the rule finds {_listed([factor * one for one in spread])} points beyond the "
            "margin with a power of 80 % (computed afterwards, as in plan.md)."
        ),
    }


def _listed(shares: Sequence[float]) -> str:
    return ", ".join(f"{100 * share:.1f}" for share in shares)


def first_run(pair: Pair, again: Pair) -> dict[str, str]:
    """The tables of the one pair that was there first; its intervals are over images alone."""
    rows = []
    for name in ORDER:
        flags = right(pair, name)
        interval = share_interval(flags)
        shown = percent(float(flags.mean()), interval.low, interval.high)
        less = "" if name == "permuted" else str(paired(flags, right(pair, "permuted")))
        rows.append((f"`{name}`", settings(pair, name), shown, less))
    claims, repeated = [], []
    for claim in CLAIMS:
        names = sides(claim, pair)
        found = paired(*(right(pair, name) for name in names))
        anew = paired(*(right(again, name) for name in sides(claim, again)))
        repeated.append((claim.text, str(found), str(anew)))
        told = "" if claim.first else f" (`{names[0]}`, `{names[1]}`)"
        said = verdict(found.low, found.high, claim.margin)
        claims.append((f"{claim.text}{told}", str(found), said))
    columns = ("model", "chosen", "accuracy", "less `permuted`")
    return {
        "first-accuracy": markdown(columns, rows),
        "first-claims": markdown(("claim", "statistic [95 %]", "verdict"), claims),
        "again": markdown(("claim", "first run", "the same seeds again"), repeated),
    }


def from_data(outcomes: Mapping[str, Pair]) -> dict[str, str]:
    """The places of README.md that follow from outcomes.json, first.json and again.json."""
    first, again = (
        json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("first", "again")
    )
    return several(outcomes) | first_run(first, again)


def main(run: str | None = None) -> None:
    """Gather outcomes.json, where there is a run, and fill README.md."""
    place = HERE / "outcomes.json"
    if run is not None:
        files = sorted(Path(run).glob("*/outcomes.json"))
        pairs = {file.parent.name: json.loads(file.read_text(encoding="utf-8")) for file in files}
        write_atomic(place, json.dumps(pairs, indent=1) + "\n")
    fill(HERE / "README.md", from_data(json.loads(place.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main(*sys.argv[1:2])
