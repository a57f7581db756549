"""What defences do for the networks: tables, and claims 16 to 21 of plan.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from defences import DEFENCES, GROUPS, networks_behind
from rules import NAMES, Drawn, Floats, each_above, each_within, listed, plain
from study import NETWORKS, RIGHT

from stockpot.corrupt import BENCHMARK
from stockpot.measure.mce import ALEXNET
from stockpot.results.contrast import Verdict
from stockpot.results.resamples import RESAMPLES, resampled_tables
from stockpot.results.statistics import share_interval
from stockpot.results.tables import markdown

Row = Mapping[str, Any]
BARE = "none"
ALONE = tuple(name for name in DEFENCES if name != BARE)
SHOWN = {
    "clahe": "CLAHE", "nlm": "non-local means", "ten_crop": "ten crops", "mirror": "mirror image",
}  # fmt: skip
KINDS = dict(zip(("noise", "blur", "weather", "digital"),
                 (BENCHMARK[:3], BENCHMARK[3:7], BENCHMARK[7:11], BENCHMARK[11:]),
                 strict=True))  # fmt: skip
LITTLE, COST = 0.05, 0.05
"""The margins of claims 17 and 21."""


class Answers:
    """Who was right about which picture under what, and numbers of it with pictures drawn anew."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.pictures = sorted({int(row["picture"]) for row in rows})
        place = {picture: n for n, picture in enumerate(self.pictures)}
        names = ("", *BENCHMARK)
        self.right: dict[tuple[str, str], Floats] = {
            (defence, name): np.full((len(place), len(names)), np.nan)
            for defence in DEFENCES
            for name in networks_behind(defence)
        }
        for row in rows:
            under = ("", *BENCHMARK[int(row["group"]) :: GROUPS])
            for name in networks_behind(row["defence"]):
                own = self.right[row["defence"], name][place[int(row["picture"])]]
                for corruption, mark in zip(under, row[name], strict=True):
                    own[names.index(corruption)] = mark == RIGHT

    def mean(self, values: Sequence[Floats], unit: float = 1.0) -> Drawn:
        """The mean over what is there of several tables of pictures x conditions.

        Conditions that a picture was not shown in are not there, in all of the tables alike. Where
        all is zero, every draw would be, as if that were certain: the ends are then those that
        Wilson gives to a share of none, in the `unit` by which an answer counts.
        """
        table = np.mean(values, axis=0)
        if not np.nansum(np.abs(values)):
            none = np.zeros(np.isfinite(table).sum(), dtype=bool)
            most = unit * share_interval(none).high
            return Drawn(0.0, np.linspace(-most, most, RESAMPLES) / 0.95)
        sums = np.stack([np.nansum(table, axis=1), np.isfinite(table).sum(axis=1)], axis=1)
        (draws,) = resampled_tables([sums], seed=0, resamples=RESAMPLES, groups=None)
        total = sums.sum(axis=0)
        return Drawn(float(total[0] / total[1]), draws[:, 0] / draws[:, 1])

    def error(self, defence: str, name: str) -> Floats:
        """Errors over AlexNet's mean error for the corruption: their mean is mCE."""
        return (1 - self.right[defence, name][:, 1:]) / [np.mean(ALEXNET[c]) for c in BENCHMARK]

    def mce(self, defence: str, name: str) -> Drawn:
        return self.mean([self.error(defence, name)])

    def worse(self, defence: str, names: Sequence[str]) -> Drawn:
        """mCE behind a defence less mCE without, mean of networks."""
        unit = float(np.mean([1 / np.mean(ALEXNET[c]) for c in BENCHMARK]))
        return self.mean([self.error(defence, n) - self.error(BARE, n) for n in names], unit)

    def gain(self, defence: str, names: Sequence[str], under: Sequence[str] = ("",)) -> Drawn:
        """Accuracy behind a defence less accuracy without; on pictures as they are, or under."""
        columns = [("", *BENCHMARK).index(each) for each in under]
        return self.mean(
            [(self.right[defence, n] - self.right[BARE, n])[:, columns] for n in names]
        )


def helps(found: Mapping[tuple[str, str], Drawn]) -> dict[tuple[str, str], str]:
    """Of each pair of defence and network, at 95 % for all pairs together."""
    said = {}
    for pair, one in found.items():
        _, low, high = one.interval(1 - 0.05 / len(found))
        said[pair] = "worse" if low > 0 else "better" if high < 0 else "not told apart"
    return said


def turned(found: Drawn) -> Drawn:
    return Drawn(-found.value, -found.draws)


def claims(rows: Sequence[Row]) -> list[tuple[str, str, Verdict]]:
    """Claim, statistic and verdict."""
    answers = Answers(rows)
    hurt = {d: [answers.worse(d, [n]) for n in networks_behind(d)] for d in ALONE}
    names = {d: [NAMES[n] for n in networks_behind(d)] for d in ALONE}
    less = {d: [turned(one) for one in hurt[d]] for d in ALONE}
    noise = answers.gain("nlm", NETWORKS, KINDS["noise"])
    cost = [answers.gain(d, networks_behind(d)) for d in ALONE]
    return [
        ("16 non-local means makes mCE worse", listed(names["nlm"], hurt["nlm"]),
         each_above(hurt["nlm"], 0)),
        ("17 ten crops change mCE little", listed(names["ten_crop"], hurt["ten_crop"]),
         each_within(hurt["ten_crop"], LITTLE)),
        ("18 CLAHE makes mCE better without tuning, too", listed(names["clahe"], less["clahe"]),
         each_above(less["clahe"], 0)),
        ("19 a mirror image beside the picture makes mCE better",
         listed(names["mirror"], less["mirror"]), each_above(less["mirror"], 0)),
        ("20 non-local means helps against noise", str(noise.interval()), each_above([noise], 0)),
        ("21 defences cost little on pictures as they are",
         listed([SHOWN[d] for d in ALONE], cost), each_above(cost, -COST)),
    ]  # fmt: skip


def tables(rows: Sequence[Row]) -> dict[str, str]:
    """The places of README.md that are about defences."""
    answers = Answers(rows)
    found = {(d, n): answers.worse(d, [n]) for d in ALONE for n in networks_behind(d)}
    said = helps(found)

    def cell(defence: str, name: str) -> str:
        if (defence, name) not in found:
            return "-"
        told = said[defence, name]
        mark = "" if told == "not told apart" else f" {told}"
        return f"{found[defence, name].interval()}{mark}"

    by_network = [
        (NAMES[n], plain(answers.mce(BARE, n).interval()), *(cell(d, n) for d in ALONE))
        for n in NETWORKS
    ]
    mean = [str(answers.worse(d, networks_behind(d)).interval()) for d in ALONE]
    kinds = [
        (SHOWN[d], str(answers.gain(d, networks_behind(d)).interval()),
         *(str(answers.gain(d, networks_behind(d), under).interval()) for under in KINDS.values()))
        for d in ALONE
    ]  # fmt: skip
    count = len(answers.pictures)
    return {
        "defended": markdown(("network", "mCE without", *SHOWN.values()),
                             [*by_network, ("mean", "-", *mean)])
        + f"\n\nPictures: {count}, each as it is and under three corruptions.",
        "kinds": markdown(("defence", "as they are", *KINDS), kinds),
    }  # fmt: skip
