"""One group of datasets against another: in distribution across, out of distribution up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from stockpot.report.charts import ticks
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
    return ScatterSection(axes.title, scatter(points, *titles), *titles, rows)


def scatter(
    points: Sequence[tuple[GroupMean, GroupMean]], across: str, up: str, *, width: int = 720
) -> Markup:
    """Numbered dots with their intervals; small dots are the single runs."""
    height, left, bottom = round(0.72 * width), 56, 48
    x_low, x_high = _range([x for x, _ in points])
    y_low, y_high = _range([y for _, y in points])

    def place(value: float, low: float, high: float, start: float, end: float) -> float:
        return start + (value - low) / max(high - low, 1e-9) * (end - start)

    def x(value: float) -> float:
        return place(value, x_low, x_high, left, width - 20)

    def y(value: float) -> float:
        return place(value, y_low, y_high, height - bottom, 24)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart scatter" '
        f'viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(up)} over {escape(across)}, {len(points)} models">'
    ]
    for tick in ticks(x_low, x_high):
        parts.append(
            f'<line class="grid" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="24" '
            f'y2="{height - bottom}"/><text class="tick" x="{x(tick):.1f}" '
            f'y="{height - bottom + 16}">{100 * tick:g}</text>'
        )
    for tick in ticks(y_low, y_high):
        parts.append(
            f'<line class="grid" x1="{left}" x2="{width - 20}" y1="{y(tick):.1f}" '
            f'y2="{y(tick):.1f}"/><text class="tick" x="{left - 18}" '
            f'y="{y(tick) + 4:.1f}">{100 * tick:g}</text>'
        )
    for a, b in points:
        parts.append(
            f'<line class="error" x1="{x(a.interval.low):.1f}" x2="{x(a.interval.high):.1f}" '
            f'y1="{y(b.value):.1f}" y2="{y(b.value):.1f}"/>'
            f'<line class="error" x1="{x(a.value):.1f}" x2="{x(a.value):.1f}" '
            f'y1="{y(b.interval.low):.1f}" y2="{y(b.interval.high):.1f}"/>'
        )
        if len(a.runs) > 1 and len(a.runs) == len(b.runs):
            for p, q in zip(a.runs, b.runs, strict=True):
                parts.append(f'<circle class="run" cx="{x(p):.1f}" cy="{y(q):.1f}" r="2"/>')
    for number, (a, b) in enumerate(points, start=1):
        parts.append(
            f'<circle class="dot" cx="{x(a.value):.1f}" cy="{y(b.value):.1f}" r="8.5">'
            f"<title>{escape(a.name)}: {_text(a)}, {_text(b)}</title></circle>"
            f'<text class="mark" x="{x(a.value):.1f}" y="{y(b.value) + 3.5:.1f}">{number}</text>'
        )
    parts.append(
        f'<text x="{(left + width) / 2:.0f}" y="{height - 8}" style="text-anchor:middle">'
        f'{escape(across)} (%)</text><text x="4" y="12">{escape(up)} (%)</text></svg>'
    )
    return Markup("".join(parts))


def _range(values: Sequence[GroupMean]) -> tuple[float, float]:
    low = min(value.interval.low for value in values)
    high = max(value.interval.high for value in values)
    room = 0.05 * (high - low) + 0.005
    return max(0.0, low - room), min(1.0, high + room)


def _title(names: Sequence[str]) -> str:
    shown = ", ".join(names)
    return f"accuracy on {shown}" if len(names) == 1 else f"mean accuracy on {shown}"


def _text(mean: GroupMean) -> str:
    low, high = 100 * mean.interval.low, 100 * mean.interval.high
    return f"{100 * mean.value:.1f} % [{low:.1f}, {high:.1f}]"
