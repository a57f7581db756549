"""What the networks keep under attack: tables, and claims 12 to 15 of plan.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rules import LARGER, NAMES, Drawn, each_above, listed, plain
from study import NETWORKS, RIGHT, rounds

from attacks import CHECKED, RADII
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
PICTURES = 1000


def flags_of(rows: Sequence[Row]) -> dict[str, Flags]:
    """For each network pictures x (as it is, then each radius)."""
    return {
        name: np.array([[mark == RIGHT for mark in row[name]] for row in rows]) for name in NETWORKS
    }


def kept(flags: Mapping[str, Flags]) -> dict[str, dict[str, Drawn]]:
    """By radius and network: robust accuracy over the accuracy on the same pictures as they are."""
    values = np.concatenate([flags[name] for name in NETWORKS], axis=1).astype(np.float64)
    draws = resampled_means(values, seed=0, resamples=RESAMPLES)
    shape = len(NETWORKS), 1 + len(RADII)
    means, drawn = values.mean(axis=0).reshape(shape), draws.reshape(-1, *shape)
    return {
        eps: {
            name: Drawn(float(means[n, r] / means[n, 0]), np.divide(drawn[:, n, r], drawn[:, n, 0]))
            for n, name in enumerate(NETWORKS)
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


def agreements(
    rows: Sequence[Row], corruption: Sequence[Row], radii: Sequence[str] = COMPARED
) -> dict[str, Agreement]:
    """Orders of networks under corruption and under attack, by radius, on common pictures."""
    numbers = [row for _, _, some in rounds(PICTURES) for row in some]
    hurt = dict(zip(numbers, corruption, strict=False))  # as many rounds as were finished
    common = [row for row in rows if row["picture"] in hurt]
    flags, tables = flags_of(common), []
    for name in NETWORKS:
        marks = np.array([[m == RIGHT for m in hurt[row["picture"]][name]] for row in common])
        tables.append(_table(marks[:, 1:].mean(axis=1), marks[:, 0]))
    found = {}
    for eps in radii:
        place = 1 + RADII.index(eps)
        under = [_table(flags[name][:, place], flags[name][:, 0]) for name in NETWORKS]
        settings = {"corruption": tables, "attack": under}
        (found[eps],) = rank_agreement(settings, resamples=RESAMPLES)
    return found


def _table(right: NDArray[Any], before: NDArray[Any]) -> NDArray[np.float64]:
    return np.stack([right, np.ones(len(right)), before], axis=1).astype(np.float64)


def correlation(found: Agreement) -> str:
    return f"{found.correlation:+.2f} [{found.low:+.2f}, {found.high:+.2f}]"


def claims(rows: Sequence[Row], corruption: Sequence[Row]) -> list[tuple[str, str, str]]:
    """Claim, statistic and verdict."""
    flags = flags_of(rows)
    first, level = kept(flags)[FIRST], 1 + RADII.index(ONE_LEVEL)
    at_level = [flags[name][:, level] for name in NETWORKS]
    better = [first[b] - first[a] for a, b in LARGER]
    others = [name for name in NETWORKS if name != "mobilenet_v2"]
    above = [first[name] - first["mobilenet_v2"] for name in others]
    order = agreements(rows, corruption, [FIRST])[FIRST]
    shares = "; ".join(f"{NAMES[name]} {share(one)}"
                       for name, one in zip(NETWORKS, at_level, strict=True))  # fmt: skip
    return [
        ("12 networks trained without attacks fall at one grey level", shares,
         each_below(at_level, MOST)),
        ("13 the better network keeps more",
         listed([f"{NAMES[b]} less {NAMES[a]}" for a, b in LARGER], better), each_above(better, 0)),
        ("14 what corruption hurts most keeps least",
         listed([f"{NAMES[name]} less MobileNetV2" for name in others], above),
         each_above(above, 0)),
        ("15 the order under corruption is that under attack", correlation(order),
         Contrast(order.correlation, order.low, order.high).verdict),
    ]  # fmt: skip


def tables(
    rows: Sequence[Row], stronger: Sequence[Row], corruption: Sequence[Row]
) -> dict[str, str]:
    """The places of README.md that are about attacks."""
    flags = flags_of(rows)
    rates, named = kept(flags), ["l_inf " + eps for eps in RADII]
    robust = [(NAMES[name], *(share(column) for column in flags[name].T)) for name in NETWORKS]
    shares = [
        (NAMES[name], *(plain(rates[eps][name].interval()) for eps in RADII)) for name in NETWORKS
    ]
    order = agreements(rows, corruption)
    last = ("keeps most", *(keeps_most(rates[eps]) for eps in RADII))
    orders = [
        (eps, correlation(one), one.decided, one.opposite) for eps, one in order.items()
    ]  # fmt: skip
    standing = {row["picture"]: row for row in rows}
    checked = []
    for name in CHECKED:
        pairs = [(standing[row["picture"]][name], row[name]) for row in stronger]
        before = sum(marks[1] == RIGHT for marks, _ in pairs)
        after = sum(marks[1] == RIGHT and left == RIGHT for marks, left in pairs)
        checked.append((NAMES[name], len(pairs), before, after))
    return {
        "attacked": markdown(("network", "as they are", *named), robust)
        + f"\n\nPictures: {len(rows)}.",
        "kept": markdown(("network", *named), [*shares, last]),
        "order": markdown(("l_inf", "Spearman [95 %]", "pairs that both decide",
                           "of these opposite"), orders),
        "stronger": markdown(("network", "pictures", "stand after ten steps, three targets",
                              "and after forty, nine"), checked),
    }  # fmt: skip
