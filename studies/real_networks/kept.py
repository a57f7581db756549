"""What the networks keep under attack: tables, and claims 12 to 15 of plan.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rules import LARGER, NAMES, Drawn, each_above, listed, plain
from study import NETWORKS, RIGHT, shown_before

from attacks import RADII
from stockpot.results.agreement import Agreement, rank_agreement
from stockpot.results.contrast import Contrast, Verdict
from stockpot.results.resamples import RESAMPLES, resampled_means
from stockpot.results.statistics import share_interval
from stockpot.results.tables import markdown, percent

Row = Mapping[str, Any]
Flags = NDArray[np.bool_]
FIRST = RADII[0]
COMPARED = RADII[:2]
"""Radii at which the order of networks is looked at; beyond, next to nothing stands."""
ONE_LEVEL, MOST = "1/255", 0.1
"""The radius of claim 12, and the share that each network has to stay below."""


def flags_of(rows: Sequence[Row]) -> dict[str, Flags]:
    """For each network that was attacked, pictures x (as it is, then each radius)."""
    return {
        name: np.array([[mark == RIGHT for mark in row[name]] for row in rows])
        for name in NETWORKS
        if name in rows[0]
    }


def kept(flags: Mapping[str, Flags]) -> dict[str, dict[str, Drawn]]:
    """By radius and network: robust accuracy over the accuracy on the same pictures as they are."""
    values = np.concatenate(list(flags.values()), axis=1).astype(np.float64)
    draws = resampled_means(values, seed=0, resamples=RESAMPLES)
    shape = len(flags), 1 + len(RADII)
    means, drawn = values.mean(axis=0).reshape(shape), draws.reshape(-1, *shape)
    return {
        eps: {
            name: Drawn(float(means[n, r] / means[n, 0]), np.divide(drawn[:, n, r], drawn[:, n, 0]))
            for n, name in enumerate(flags)
        }
        for r, eps in enumerate(RADII, 1)
    }


def keeps_most(found: Mapping[str, Drawn]) -> str:
    """The network that keeps more than each other, at 95 % for all pairs together."""
    pairs = len(list(combinations(found, 2)))
    for name, own in found.items():
        others = [own - other for key, other in found.items() if key != name]
        if all(one.interval(1 - 0.05 / pairs).low > 0 for one in others):
            return NAMES[name]
    return "not told apart"


def each_below(flags: Sequence[Flags], margin: float) -> Verdict:
    """Whether all shares lie below the margin, by the rule of plan.md; Wilson's intervals.

    A share of none would be drawn as none each time, as if that were certain.
    """
    if any(share_interval(one, None, 1 - 0.05 / len(flags)).low > margin for one in flags):
        return "did not hold"
    below = all(share_interval(one).high < margin for one in flags)
    return "held" if below else "not told apart"


def share(flags: Flags) -> str:
    interval = share_interval(flags)
    return percent(float(flags.mean()), interval.low, interval.high)


def rate(found: Drawn, flags: Flags, place: int) -> str:
    """A share that is kept; none of some pictures is none in every draw, so by Wilson there."""
    return plain(found.interval()) if found.value else share(flags[flags[:, 0]][:, place])


def agreements(
    rows: Sequence[Row], corruption: Sequence[Row], radii: Sequence[str] = COMPARED
) -> dict[str, Agreement]:
    """Orders of networks under corruption and under attack, by radius, on common pictures."""
    hurt = shown_before(corruption)
    common = [row for row in rows if row["picture"] in hurt]
    flags, tables = flags_of(common), []
    for name in flags:
        marks = np.array([[m == RIGHT for m in hurt[row["picture"]][name]] for row in common])
        tables.append(_table(marks[:, 1:].mean(axis=1), marks[:, 0]))
    found = {}
    for eps in radii:
        place = 1 + RADII.index(eps)
        under = [_table(own[:, place], own[:, 0]) for own in flags.values()]
        settings = {"corruption": tables, "attack": under}
        (found[eps],) = rank_agreement(settings, resamples=RESAMPLES)
    return found


def _table(right: NDArray[Any], before: NDArray[Any]) -> NDArray[np.float64]:
    return np.stack([right, np.ones(len(right)), before], axis=1).astype(np.float64)


def measured(found: Verdict, flags: Mapping[str, Flags]) -> str:
    """A verdict on all networks, where not all of them may have been attacked."""
    return found if found == "did not hold" or len(flags) == len(NETWORKS) else "not measured"


def correlation(found: Agreement) -> str:
    return f"{found.correlation:+.2f} [{found.low:+.2f}, {found.high:+.2f}]"


def claims(rows: Sequence[Row], corruption: Sequence[Row]) -> list[tuple[str, str, str]]:
    """Claim, statistic and verdict."""
    flags = flags_of(rows)
    first, level = kept(flags)[FIRST], 1 + RADII.index(ONE_LEVEL)
    at_level = {name: own[:, level] for name, own in flags.items()}
    pairs = [(a, b) for a, b in LARGER if a in flags and b in flags]
    better = [first[b] - first[a] for a, b in pairs]
    others = [name for name in flags if name != "mobilenet_v2"]
    above = [first[name] - first["mobilenet_v2"] for name in others]
    told: list[tuple[str, str, Verdict]] = [
        ("12 networks trained without attacks fall at one grey level",
         "; ".join(f"{NAMES[name]} {share(own)}" for name, own in at_level.items()),
         each_below(list(at_level.values()), MOST)),
        ("13 the better network keeps more",
         listed([f"{NAMES[b]} less {NAMES[a]}" for a, b in pairs], better), each_above(better, 0)),
        ("14 what corruption hurts most keeps least",
         listed([f"{NAMES[name]} less MobileNetV2" for name in others], above),
         each_above(above, 0)),
    ]  # fmt: skip
    found = [(claim, words, measured(said, flags)) for claim, words, said in told]
    last = "15 the order under corruption is that under attack"
    if len(flags) < len(NETWORKS):
        return [*found, (last, "-", "not measured")]
    order = agreements(rows, corruption, [FIRST])[FIRST]
    said = Contrast(order.correlation, order.low, order.high).verdict
    return [*found, (last, correlation(order), said)]


def tables(rows: Sequence[Row], corruption: Sequence[Row]) -> dict[str, str]:
    """The places of README.md that are about attacks."""
    flags = flags_of(rows)
    rates, named = kept(flags), ["l_inf " + eps for eps in RADII]
    robust = [(NAMES[name], *(share(column) for column in own.T)) for name, own in flags.items()]
    shares = [
        (NAMES[name], *(rate(rates[eps][name], own, r) for r, eps in enumerate(RADII, 1)))
        for name, own in flags.items()
    ]
    found = {
        "attacked": markdown(("network", "as they are", *named), robust)
        + f"\n\nPictures: {len(rows)}.",
        "kept": markdown(("network", *named),
                         [*shares, ("keeps most", *(keeps_most(rates[eps]) for eps in RADII))]),
    }  # fmt: skip
    if len(flags) == len(NETWORKS):
        orders = [
            (eps, correlation(one), one.decided, one.opposite)
            for eps, one in agreements(rows, corruption).items()
        ]
        heads = ("l_inf", "Spearman [95 %]", "pairs that both decide", "of these opposite")
        found["order"] = markdown(heads, orders)
    return found
