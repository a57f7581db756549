"""What the networks keep on pictures that were made against them: claims 22 to 24 of plan.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from kept import Flags, correlation, flags_of, measured, share
from rules import LARGER, NAMES, Drawn, each_above, listed, plain
from study import NETWORKS, RIGHT, shown_before

from dynamic import ORACLES, RECORDS
from stockpot.results.agreement import Agreement, rank_agreement
from stockpot.results.contrast import Contrast, verdict
from stockpot.results.resamples import RESAMPLES, resampled_means
from stockpot.results.tables import markdown

Row = Mapping[str, Any]
ALIKE = 0.8
"""The correlation from which on two rankings are held for one; as in studies/fmr."""


def parts(flags: Flags) -> Mapping[str, Flags]:
    return dict(zip(RECORDS, flags.T, strict=True))


def matched(flags: Mapping[str, Flags]) -> dict[str, tuple[Drawn, Drawn, Drawn]]:
    """SA and PA over the validated pictures of each network, and FMR, their ratio."""
    columns = []
    for own in map(parts, flags.values()):
        validated = own["validated"]
        columns += [validated, validated & own["correct"], validated & own["withstood"]]
    values = np.stack(columns, axis=1).astype(np.float64)
    draws = resampled_means(values, seed=0, resamples=RESAMPLES)
    found = {}
    for n, name in enumerate(flags):
        (v, s, p), (vs, ss, ps) = values.mean(axis=0)[3 * n :][:3], draws.T[3 * n :][:3]
        found[name] = Drawn(s / v, ss / vs), Drawn(p / v, ps / vs), Drawn(p / s, ps / ss)
    return found


def order(rows: Sequence[Row], corruption: Sequence[Row]) -> Agreement:
    """The order by matched FMR and that by what is kept under corruption, on common pictures."""
    hurt = shown_before(corruption)
    common = [row for row in rows if row["picture"] in hurt]
    static, searched = [], []
    for name, own in flags_of(common).items():
        found = parts(own)
        validated = found["validated"]
        ones = np.ones(len(common))
        searched.append([validated & found["withstood"], validated & found["correct"], ones])
        marks = np.array([[m == RIGHT for m in hurt[row["picture"]][name]] for row in common])
        static.append([marks[:, 1:].mean(axis=1), ones, marks[:, 0]])
    settings = {
        key: [np.stack(table, axis=1).astype(np.float64) for table in tables]
        for key, tables in (("corruption", static), ("search", searched))
    }
    (agreed,) = rank_agreement(settings, resamples=RESAMPLES)
    return agreed


def claims(rows: Sequence[Row], corruption: Sequence[Row]) -> list[tuple[str, str, str]]:
    """Claim, statistic and verdict."""
    flags = flags_of(rows)
    found = matched(flags)
    lost = [sa - pa for sa, pa, _ in found.values()]
    pairs = [(a, b) for a, b in LARGER if a in found and b in found]
    better = [found[b][2] - found[a][2] for a, b in pairs]
    told = [
        ("22 PA < SA for every network", listed([NAMES[n] for n in found], lost),
         measured(each_above(lost, 0), flags)),
        ("23 the better network keeps more when searched",
         listed([f"{NAMES[b]} less {NAMES[a]}" for a, b in pairs], better),
         measured(each_above(better, 0), flags)),
    ]  # fmt: skip
    last = "24 the dynamic ranking differs from the static one"
    if len(flags) < len(NETWORKS):
        return [*told, (last, "-", "not measured")]
    agreed = order(rows, corruption)
    apart = Contrast(ALIKE - agreed.correlation, ALIKE - agreed.high, ALIKE - agreed.low)
    said = verdict(apart.low, apart.high)
    return [*told, (last, f"correlation {correlation(agreed)}", said)]


def tables(rows: Sequence[Row], signs: Sequence[Row]) -> dict[str, str]:
    """The place of README.md that is about FMR."""
    flags = flags_of(rows)
    seen = {row["network"]: row for row in signs}
    body = []
    for name, (sa, pa, fmr) in matched(flags).items():
        own = parts(flags[name])
        body.append((
            NAMES[name], NAMES[ORACLES[name]], share(own["correct"]), share(own["known"]),
            share(own["validated"]), plain(sa.interval()), plain(pa.interval()),
            plain(fmr.interval()),
            round(seen[name]["fell"]) if seen[name]["again"] == "yes" else "-",
        ))  # fmt: skip
    heads = ("network", "oracle", "right", "oracle right", "validated", "SA", "PA", "matched FMR",
             "fell without gradients alone")  # fmt: skip
    return {"dynamic": markdown(heads, body) + f"\n\nPictures: {len(rows)}."}
