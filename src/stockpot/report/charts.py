"""Small charts as SVG text: no plotting library, nothing to load, sharp at every size.

Colours come from the page's style sheet by class name, so charts follow its light and dark look.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup, escape


class Whisker(NamedTuple):
    """A value with its interval and a label."""

    label: str
    value: float
    low: float
    high: float
    text: str


def whiskers(rows: Sequence[Whisker], *, width: int = 640) -> Markup:
    """A dot and interval per row on a common axis of fractions."""
    row_height, label_width, text_width = 26, 170, 150
    left, right = label_width, width - text_width
    low = max(0.0, min(row.low for row in rows) - 0.03)
    high = min(1.0, max(row.high for row in rows) + 0.03)
    span = max(high - low, 1e-9)

    def x(value: float) -> float:
        return left + (value - low) / span * (right - left)

    height = row_height * len(rows) + 26
    parts = [
        f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(_spoken(rows))}">'
    ]
    for tick in ticks(low, high):
        parts.append(
            f'<line class="grid" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="0" y2="{height - 20}"/>'
            f'<text class="tick" x="{x(tick):.1f}" y="{height - 6}">{100 * tick:g} %</text>'
        )
    for index, row in enumerate(rows):
        y = row_height * index + row_height / 2
        parts.append(
            f'<text class="label" x="0" y="{y + 4:.1f}">{escape(row.label)}</text>'
            f'<line class="whisker" x1="{x(row.low):.1f}" x2="{x(row.high):.1f}" '
            f'y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<circle class="dot" cx="{x(row.value):.1f}" cy="{y:.1f}" r="4.5"/>'
            f'<text class="value" x="{right + 12}" y="{y + 4:.1f}">{escape(row.text)}</text>'
        )
    parts.append("</svg>")
    return Markup("".join(parts))


def _spoken(rows: Sequence[Whisker]) -> str:
    return "; ".join(f"{row.label}: {row.text}" for row in rows)


def ticks(low: float, high: float) -> list[float]:
    """Round values within a range of fractions, at most eight."""
    step = next(s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if (high - low) / s <= 7 or s == 0.5)
    first = int(low / step) + (low % step > 1e-9)
    return [round(step * k, 4) for k in range(first, int(high / step + 1e-9) + 1)]


def shade(value: float) -> str:
    """A style that fills a table cell in proportion to a fraction; text stays readable."""
    return f"--share:{max(0.0, min(1.0, value)):.3f}"
