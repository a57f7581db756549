"""The charts of the house: whiskers, lines with bands, scatter, heat map, triangle."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from stockpot.charts.axes import Axes, percent, span, ticks
from stockpot.charts.canvas import Canvas, Place, width_of
from stockpot.charts.palette import ink_on, series, shade, two_sided


class Mark(NamedTuple):
    """A named value with its interval, and how both are written."""

    label: str
    value: float
    low: float
    high: float
    text: str = ""


class Spot(NamedTuple):
    """A point of a line, its interval where it has one, and what it says when pointed at."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    note: str = ""


class Pair(NamedTuple):
    """One thing with two values, each with its interval; `runs` are pairs that they average."""

    across: Mark
    up: Mark
    runs: Sequence[tuple[float, float]] = ()


def whiskers(rows: Sequence[Mark], *, title: str = "", width: int = 640) -> Canvas:
    """A dot and interval per row on a common axis of shares."""
    high_row, top = 26, 30 if title else 0
    left = 12 + min(0.4 * width, max(width_of(row.label, 12.5) for row in rows))
    right = width - 16 - min(0.3 * width, max(width_of(row.text, 12.5) for row in rows))
    low, high = span([end for row in rows for end in (row.low, row.high)], 0.02)
    spoken = "; ".join(f"{row.label}: {row.text}" for row in rows)
    canvas = Canvas(width, top + high_row * len(rows) + 26, title or spoken)

    def x(value: float) -> float:
        return left + (value - low) / max(high - low, 1e-9) * (right - left)

    if title:
        canvas.text((6, 18), title)
    for tick in ticks(low, high):
        canvas.path([(x(tick), top), (x(tick), canvas.height - 20)], "line", width=1)
        canvas.text((x(tick), canvas.height - 6), f"{percent(tick)} %", anchor="middle",
                    colour="soft", size=11)  # fmt: skip
    for index, row in enumerate(rows):
        y = top + high_row * (index + 0.5)
        canvas.text((4, y + 4), row.label, size=12.5, room=left - 12)
        canvas.path([(x(row.low), y), (x(row.high), y)], "accent-soft", width=5, round=True)
        canvas.dot((x(row.value), y), "accent", 4.5, f"{row.label}: {row.text}")
        canvas.text((right + 12, y + 4), row.text, size=12.5)
    return canvas


def lines(
    drawn: Mapping[str, Sequence[Spot]],
    *,
    across: str,
    up: str,
    marks: Sequence[tuple[float, str]] | None = None,
    known: tuple[float, float] | None = None,
    logarithmic: bool = False,
    unit: str = "%",
    title: str = "",
    width: int = 680,
    height: int = 360,
) -> Canvas:
    """Values of several things over a common axis, joined, with bands of their intervals.

    Args:
        drawn: the points of each thing, from left to right.
        across: what runs from left to right.
        up: what runs upwards.
        marks: places that are written along the axis; round numbers without them.
        known: what lies outside of this range stands on a grey ground.
        logarithmic: equal factors are equally far apart.
        unit: of what runs upwards: shares, written as percents, or numbers of another unit.
        title: of the picture, for those who cannot see it.
        width: of the picture.
        height: of the picture.
    """
    spots = [spot for line in drawn.values() for spot in line]
    places = [spot.x for spot in spots]
    ends = [end for s in spots for end in (s.y, s.low, s.high) if end is not None]
    aside = 16.0
    if len(drawn) > 1:
        aside = 36 + min(0.35 * width, max(width_of(name, 12) for name in drawn))
    canvas = Canvas(width, height, title or f"{up} over {across}")
    axes = Axes(canvas, _wide(min(places), max(places)), span(ends), aside=aside,
                logarithmic=logarithmic)  # fmt: skip
    if known is not None:
        for low, high in ((axes.across[0], known[0]), (known[1], axes.across[1])):
            if high > low:
                sides = [(low, axes.up[0]), (high, axes.up[0]), (high, axes.up[1]),
                         (low, axes.up[1])]  # fmt: skip
                canvas.area([axes.at(*corner) for corner in sides], "soft", 0.1)
    shares = unit == "%"
    axes.frame(across, f"{up} ({unit})", [(v, f"{v:g}") for v in ticks(*axes.across)]
               if marks is None else marks, None if shares else "{:g}".format)  # fmt: skip
    for index, line in enumerate(drawn.values()):
        upper = [axes.at(s.x, s.high) for s in line if s.high is not None]
        lower = [axes.at(s.x, s.low) for s in line if s.low is not None]
        if upper:
            canvas.area([*upper, *reversed(lower)], series(index))
    for index, line in enumerate(drawn.values()):
        canvas.path([axes.at(s.x, s.y) for s in line], series(index), width=2)
        for s in line:
            said = f"{100 * s.y:.1f} %" if shares else f"{s.y:g} {unit}"
            canvas.dot(axes.at(s.x, s.y), series(index), note=s.note or said)
    if len(drawn) > 1:
        canvas.legend((axes.right + 16, axes.top + 12), list(drawn))
    return canvas


def curve(points: Sequence[Mark], *, across: str, up: str) -> Canvas:
    """One score over the values of one parameter: numbers where they belong, names in a row."""
    try:
        places = [float(point.label) for point in points]
    except ValueError:
        places = [float(index) for index in range(len(points))]
    spots = [
        Spot(x, p.value, p.low, p.high,
             f"{across} {p.label}: {100 * p.value:.1f} [{100 * p.low:.1f}, {100 * p.high:.1f}]")
        for x, p in zip(places, points, strict=True)
    ]  # fmt: skip
    marks = [(x, point.label) for x, point in zip(places, points, strict=True)]
    return lines({up: spots}, across=across, up=up, marks=marks, width=640, height=320)


def scatter(points: Sequence[Pair], across: str, up: str, *, width: int = 720) -> Canvas:
    """Numbered dots with their intervals; small dots are the single runs."""
    canvas = Canvas(width, round(0.72 * width), f"{up} over {across}, {len(points)} models")
    reach = [
        span([end for mark in side for end in (mark.low, mark.high)], 0.012)
        for side in ([p.across for p in points], [p.up for p in points])
    ]
    axes = Axes(canvas, *reach)
    axes.frame(f"{across} (%)", f"{up} (%)", [(v, percent(v)) for v in ticks(*reach[0])])
    for point in points:
        a, b = point.across, point.up
        canvas.path([axes.at(a.low, b.value), axes.at(a.high, b.value)], "accent-soft", width=1.5)
        canvas.path([axes.at(a.value, b.low), axes.at(a.value, b.high)], "accent-soft", width=1.5)
        for run in point.runs:
            canvas.dot(axes.at(*run), "soft", 2)
    for number, point in enumerate(points, start=1):
        x, y = axes.at(point.across.value, point.up.value)
        canvas.dot((x, y), "accent", 8.5,
                   f"{point.across.label}: {point.across.text}, {point.up.text}")  # fmt: skip
        canvas.text((x, y + 3.5), str(number), anchor="middle", colour="card", size=9.5, bold=True)
    return canvas


def heat_map(
    values: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    colour: Callable[[float], str] = two_sided,
    write: Callable[[float], str] = "{:.2f}".format,
) -> Canvas:
    """A table of numbers on coloured ground.

    Args:
        values: a list per row.
        rows: what they are called.
        columns: what the columns are called.
        title: of the picture.
        colour: of a number; blue at -1, white at 0 and red at 1 unless another is given.
        write: a number as text.
    """
    cell, head = 46, 30
    left = 14 + min(190.0, max(width_of(name, 12) for name in rows))
    top = head + 12 + min(150.0, max(width_of(name, 12) for name in columns))
    width = max(left + cell * len(columns) + 12, 20 + width_of(title, 12))
    canvas = Canvas(round(width), round(top + cell * len(rows) + 12), title)
    canvas.text((8, 18), title)
    for column, name in enumerate(columns):
        canvas.text((left + cell * (column + 0.5) + 4, top - 6), name, turned=True,
                    room=top - head - 6)  # fmt: skip
    for row, (name, line) in enumerate(zip(rows, values, strict=True)):
        y = top + row * cell
        canvas.text((left - 6, y + 27), name, anchor="end")
        for column, value in enumerate(line):
            x = left + column * cell
            missing = math.isnan(value)
            ground = "line" if missing else colour(value)
            words = "-" if missing else write(value)
            canvas.box((x, y), cell - 1, cell - 1, ground, f"{name}, {columns[column]}: {words}")
            canvas.text((x + cell / 2, y + 27), words, anchor="middle",
                        colour="ink" if missing else ink_on(ground))  # fmt: skip
    return canvas


class Share(NamedTuple):
    """A mixture of three and its score."""

    shares: tuple[float, float, float]
    value: float


_SIDE, _PANEL, _HEADER = 240.0, 330, 44


def triangle(panels: Mapping[str, Sequence[Share]], corners: Sequence[str], title: str) -> Canvas:
    """Mixtures of three as discs between three corners; the best of each panel is ringed."""
    canvas = Canvas(_PANEL * len(panels), _HEADER + 300, title)
    canvas.text((10, 18), title)
    for index, (name, points) in enumerate(panels.items()):
        corner = (index * _PANEL + 45.0, _HEADER + 240.0)
        ends = [_between(corner, share) for share in ((1, 0, 0), (0, 1, 0), (0, 0, 1))]
        canvas.path([*ends, ends[0]], "line")
        scores = [point.value for point in points]
        best = scores.index(max(scores))
        canvas.text((corner[0] - 30, _HEADER - 6), f"{name}: {100 * scores[best]:.1f} % at best",
                    room=_PANEL - 20)  # fmt: skip
        for number, (shares, value) in enumerate(points):
            at = _between(corner, shares)
            words = ", ".join(f"{n} {w:g}" for n, w in zip(corners, shares, strict=True))
            note = f"{words}: {100 * value:.1f} %"
            if number == best:
                canvas.dot(at, "ink", 17, note)
            ground = shade(value, min(scores), max(scores))
            canvas.dot(at, ground, 14, note)
            canvas.text((at[0], at[1] + 4), f"{100 * value:.0f}", anchor="middle",
                        colour=ink_on(ground), size=11)  # fmt: skip
        for end, corner_name, (x, y) in zip(ends, corners, ((-6, 32), (6, 32), (0, -22)),
                                            strict=True):  # fmt: skip
            canvas.text((end[0] + x, end[1] + y), corner_name, anchor="middle", colour="soft",
                        room=_SIDE - 20)  # fmt: skip
    return canvas


def _between(corner: Place, shares: Sequence[float]) -> Place:
    """The first corner is below on the left, the second on the right, the third above."""
    _, second, third = shares
    return (
        corner[0] + _SIDE * (second + third / 2),
        corner[1] - _SIDE * third * math.sqrt(3) / 2,
    )


def _wide(low: float, high: float) -> tuple[float, float]:
    return (low, high) if high > low else (low - 0.5, high + 0.5)
