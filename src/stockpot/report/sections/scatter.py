"""One group of datasets against another: in distribution across, out of distribution up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from stockpot import charts
from stockpot.charts import Canvas, Mark, Pair
from stockpot.report.design import Cell, Column, table
from stockpot.results.groups import GroupMean, group_means
from stockpot.results.schema import CellResult, Score
from stockpot.results.statistics import Interval
from stockpot.results.summary.comparable import comparable
from stockpot.results.tables import overall


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
    points: tuple[GroupMean, GroupMean]


class ScatterSection(NamedTuple):
    """The chart, and the table that says which point is which."""

    title: str
    chart: Markup
    across: str
    up: str
    rows: list[ScatterRow]
    name: str = "scatter"
    """Of its table."""

    @property
    def table(self) -> Markup:
        """The points in words."""
        several = any(row.runs > 1 for row in self.rows)
        heads = [Column("model", number=False), Column("point"), Column(self.across),
                 Column(self.up), *([Column("runs")] if several else [])]  # fmt: skip
        body = [
            [Cell(row.name), Cell(str(row.number), row.number), *map(_cell, row.points),
             *([Cell(str(row.runs), row.runs)] if several else [])]
            for row in self.rows
        ]  # fmt: skip
        return table(self.name, heads, body, most=20)


def outside_sections(results: Sequence[CellResult]) -> list[ScatterSection]:
    """What was measured inside against outside: shifts of two or more models, and corruptions of
    three or more, without a recipe asking for it."""
    found = []
    for number, group in enumerate(comparable(results)):
        metric, least = _OUTSIDE.get(group.measure, ("", 0))
        pairs = [
            (mean_of(cell.key.model, inside), mean_of(cell.key.model, outside))
            for cell in group.cells
            if (inside := overall(cell, "accuracy")) and (outside := overall(cell, metric))
        ]
        if metric and len(pairs) >= least:
            pairs.sort(key=lambda pair: -pair[1].value)
            titles = (f"accuracy on {group.data}", _UP[metric])
            chart = Markup(scatter(pairs, *titles).inline())
            title = f"{group.measure} on {group.data}"
            found.append(ScatterSection(title, chart, *titles, _rows(pairs), f"outside-{number}"))
    return found


_OUTSIDE = {
    "shift": ("mean_outside_accuracy", 2),
    "imagenet_variants": ("mean_outside_accuracy", 2),
    "corruption": ("mean_corruption_accuracy", 3),
}
_UP = {
    "mean_outside_accuracy": "mean accuracy outside",
    "mean_corruption_accuracy": "mean accuracy under corruptions",
}


def mean_of(name: str, score: Score) -> GroupMean:
    """One score as a point of a scatter."""
    low = score.value if score.ci_low is None else score.ci_low
    high = score.value if score.ci_high is None else score.ci_high
    interval = Interval(low, high, score.ci_method or "none")
    return GroupMean(name, score.value, interval, (score.value,), score.n)


def scatter_section(results: Sequence[CellResult], axes: Axes) -> ScatterSection | None:
    """Mean accuracy on the second group of datasets over that on the first, for every model."""
    across, up = group_means(results, axes.across), group_means(results, axes.up)
    names = [name for name in across if name in up]
    if not names:
        return None
    names.sort(key=lambda name: -up[name].value)
    titles = (_title(axes.across), _title(axes.up))
    points = [(across[name], up[name]) for name in names]
    chart = Markup(scatter(points, *titles).inline())
    name = f"scatter-{'-'.join(axes.across)}-{'-'.join(axes.up)}"
    return ScatterSection(axes.title, chart, *titles, _rows(points), name)


def _rows(points: Sequence[tuple[GroupMean, GroupMean]]) -> list[ScatterRow]:
    return [
        ScatterRow(number, x.name, _text(x), _text(y), len(x.runs), (x, y))
        for number, (x, y) in enumerate(points, start=1)
    ]


def _cell(mean: GroupMean) -> Cell:
    low, high = mean.interval.low, mean.interval.high
    return Cell(f"{100 * mean.value:.1f} %", mean.value, low, high,
                f"{100 * low:.1f} to {100 * high:.1f}")  # fmt: skip


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
