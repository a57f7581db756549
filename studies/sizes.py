"""What differences the studies without a size in their plan could find, computed afterwards.

    python studies/sizes.py

A plan should say before the run which difference its images find. Some did not. This takes the
intervals that lie in the results: one of half-width h has a standard error of h / 1.96, and finds a
difference of h x (1.96 + 0.84) / 1.96 with a power of 80 % at 5 %. It fills the plans' places, and
changes no verdict.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import NormalDist

from gather import rows as table
from stockpot.results.tables import fill, markdown, read_csv

HERE = Path(__file__).parent
POWER, LEVEL = 0.80, 0.05
ENDS = re.compile(r"\[([+-]?[\d.]+), ([+-]?[\d.]+)\]")
Ends = tuple[float, float]
Line = tuple[str, Sequence[Ends]]


def least(ends: Ends) -> float:
    """The difference that an interval so wide finds with the power."""
    normal = NormalDist()
    known = normal.inv_cdf(1 - LEVEL / 2)
    return (ends[1] - ends[0]) / 2 * (known + normal.inv_cdf(POWER)) / known


def from_csv(study: str, file: str, name: str, **only: str) -> list[Ends]:
    """Intervals of a column, in points; where nothing was compared there are none."""
    found = read_csv(HERE / study / f"{file}.csv")
    own = [row for row in found if all(row[key] == value for key, value in only.items())]
    own = [row for row in own if row.get("method") != "source"]  # what others are compared with
    ends = [(row[f"{name}_low"], row[f"{name}_high"]) for row in own]
    return [(100 * low, 100 * high) for low, high in ends if low is not None and low < high]


def from_page(study: str, place: str, column: str, begins: str = "") -> list[Ends]:
    """Intervals of a page's table, as they stand there, in rows whose first column begins so."""
    own = [row for row in table(study, place) if next(iter(row.values())).startswith(begins)]
    found = (ENDS.findall(row[column]) for row in own)
    return [(float(low), float(high)) for row in found for low, high in row if low != high]


def adaptation() -> list[Line]:
    lines: list[Line] = []
    streams = {(row["data"], row["stream"]) for row in read_csv(HERE / "adaptation" / "scores.csv")}
    for data, stream in sorted(streams):
        of = {"data": data, "stream": stream}
        lines.append(
            (
                f"{data}, {stream}: a method less `source`",
                from_csv("adaptation", "scores", "gain", **of),
            )
        )
        change = from_csv("adaptation", "scores", "change", **of)
        lines.append((f"{data}, {stream}: less the same method on `single`", change))
    lines.append(
        (
            "200 pictures of CIFAR-10: a method less `source`",
            from_csv("adaptation", "cotta", "gain"),
        )
    )
    lines.append(("first run: a method less `source`", from_csv("adaptation", "first", "gain")))
    return lines  # fmt: skip


def surface() -> list[Line]:
    column = "difference in points"
    names = [row["finding"] for row in table("surface", "findings")]
    return [(name, from_page("surface", "findings", column, name)) for name in names]


def enhancements() -> list[Line]:
    names = [row["claim"] for row in table("enhancements", "claims")]
    compared = {row["claim"]: row["difference of mCE"] for row in table("enhancements", "claims")}
    models = {name: [part.split()[0] for part in compared[name].split("; ")] for name in names}
    return [
        (name, [ends for model in models[name]
                for ends in from_csv("enhancements", "scores", "mce_gap", model=model)])
        for name in names
    ]  # fmt: skip


def label_free() -> list[Line]:
    errors = [(f"{pool}: an estimate less `source`",
               from_page("label_free", "errors", "less than `source`", pool))
              for pool in ("icons", "cifar10", "both")]  # fmt: skip
    regrets = [(f"{labels} labels: regret of `random` less that of a way of asking",
                from_page("label_free", "regret", "less regret than `random`", labels))
               for labels in ("0", "5", "10", "20", "30")]  # fmt: skip
    stated = from_page("label_free", "stated", "difference")
    return [*errors, *regrets, ("stated probability less the share that is near", stated)]


def clip_fusion() -> list[Line]:
    return [
        ("a method tuned less its defaults", from_csv("clip_fusion", "tuned", "gain")),
        ("the choice of all less the best default", from_csv("clip_fusion", "leaders", "margin")),
        ("published order: a method less the one before it",
         from_page("clip_fusion", "order", "difference of means, points [95 %]")),
    ]  # fmt: skip


PLANS = {
    "adaptation": adaptation, "surface": surface, "enhancements": enhancements,
    "label_free": label_free, "clip_fusion": clip_fusion,
}  # fmt: skip


def sizes(lines: Iterable[Line]) -> str:
    """A row for each kind of difference: how many there are, and what they find."""
    body = []
    for name, found in lines:
        each = sorted(map(least, found))
        if each:
            span = f"{each[0]:.1f}" if len(each) == 1 else f"{each[0]:.1f} to {each[-1]:.1f}"
            body.append((name, len(each), span))
    return markdown(("difference", "intervals", "found with a power of 80 %, points"), body)


if __name__ == "__main__":
    for study, lines in PLANS.items():
        fill(HERE / study / "plan.md", {"size": sizes(lines())})
