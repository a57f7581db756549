"""One group of datasets against another: in distribution across, out of distribution up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from stockpot import charts
from stockpot.charts import Canvas, Mark, Pair
from stockpot.results.groups import GroupMean, group_means
from stockpot.results.schema import CellResult


class Axes(NamedTuple):
    """Two groups of datasets to draw against each other."""

    across: Sequence[str]
    up: Sequence[str]
    title: str = ""


class ScatterRow(NamedTuple):
    """One numbered point in words."""

    number: int
    name: str
    across: str
    up: str
    runs: int


class ScatterSection(NamedTuple):
    """The chart, and the table that says which point is which."""

    title: str
    chart: Markup
    across: str
    up: str
    rows: list[ScatterRow]


def scatter_section(results: Sequence[CellResult], axes: Axes) -> ScatterSection | None:
    """Mean accuracy on the second group of datasets over that on the first, for every model."""
    across, up = group_means(results, axes.across), group_means(results, axes.up)
    names = [name for name in across if name in up]
    if not names:
        return None
    names.sort(key=lambda name: -up[name].value)
    titles = (_title(axes.across), _title(axes.up))
    points = [(across[name], up[name]) for name in names]
    rows = [
        ScatterRow(number, x.name, _text(x), _text(y), len(x.runs))
        for number, (x, y) in enumerate(points, start=1)
    ]
    chart = Markup(scatter(points, *titles).inline())
    return ScatterSection(axes.title, chart, *titles, rows)


def scatter(points: Sequence[tuple[GroupMean, GroupMean]], across: str, up: str) -> Canvas:
    """Numbered dots with their intervals; small dots are the single runs."""
    return charts.scatter([_pair(x, y) for x, y in points], across, up)


def _pair(x: GroupMean, y: GroupMean) -> Pair:
    several = len(x.runs) > 1 and len(x.runs) == len(y.runs)
    runs = list(zip(x.runs, y.runs, strict=True)) if several else []
    across, up = (Mark(m.name, m.value, m.interval.low, m.interval.high, _text(m)) for m in (x, y))
    return Pair(across, up, runs)


def _title(names: Sequence[str]) -> str:
    shown = ", ".join(names)
    return f"accuracy on {shown}" if len(names) == 1 else f"mean accuracy on {shown}"


def _text(mean: GroupMean) -> str:
    low, high = 100 * mean.interval.low, 100 * mean.interval.high
    return f"{100 * mean.value:.1f} % [{low:.1f}, {high:.1f}]"
