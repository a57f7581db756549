"""Differences with their intervals on one axis, around the line where neither is better."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stockpot.charts import Canvas, ticks
from stockpot.charts.canvas import width_of

_ROW, _SIZE = 26, 12.5


class Difference(NamedTuple):
    """One row."""

    label: str
    value: float
    low: float
    high: float
    text: str
    told: bool
    """Whether it counts; others are drawn faintly."""


def differences(rows: Sequence[Difference], *, margin: float = 0.0, width: int = 900) -> Canvas:
    """A dot and an interval per row; to the right of the line A is better."""
    left = 12 + min(0.42 * width, max(width_of(row.label, _SIZE) for row in rows))
    right = width - 16 - min(0.3 * width, max(width_of(row.text, _SIZE) for row in rows))
    ends = [0.0, margin, *(end for row in rows for end in (row.low, row.high))]
    room = max(0.1 * (max(ends) - min(ends)), 0.005)
    low, high = min(ends) - room, max(ends) + room
    spoken = "; ".join(f"{row.label}: {row.text}" for row in rows)
    canvas = Canvas(width, _ROW * len(rows) + 44, f"A - B in points. {spoken}")
    bottom = _ROW * len(rows) + 4

    def x(value: float) -> float:
        return left + (value - low) / (high - low) * (right - left)

    for tick in ticks(low, high):
        canvas.path([(x(tick), 0), (x(tick), bottom)], "line", width=1)
        canvas.text((x(tick), bottom + 14), f"{round(100 * tick, 6):+g}" if tick else "0",
                    anchor="middle", colour="soft", size=11)  # fmt: skip
    canvas.path([(x(margin), 0), (x(margin), bottom)], "ink", width=1.4)
    canvas.text((x(low), bottom + 32), "B better", colour="soft", size=11)
    canvas.text((x(high), bottom + 32), "A better", anchor="end", colour="soft", size=11)
    for index, row in enumerate(rows):
        y = _ROW * (index + 0.5) + 2
        canvas.text((4, y + 4), row.label, size=_SIZE, room=left - 12)
        canvas.path([(x(row.low), y), (x(row.high), y)], "accent-soft", width=5, round=True)
        colour = "accent" if row.told else "soft"
        canvas.dot((x(row.value), y), colour, 4.5, f"{row.label}: {row.text}")
        canvas.text((right + 12, y + 4), row.text, size=_SIZE,
                    colour="ink" if row.told else "soft")  # fmt: skip
    return canvas
