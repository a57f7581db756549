"""A curve with its band: one score over the values of one parameter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

_STYLE = (
    "<style>text{font:12px system-ui,sans-serif;fill:#1f2421}.tick{fill:#66706a;font-size:11px}"
    ".grid{stroke:#dcdad2}.line{fill:none;stroke:#b4532a;stroke-width:2}.band{fill:#b4532a;"
    "opacity:.18}.dot{fill:#b4532a}</style><rect width='100%' height='100%' fill='#fbfaf7'/>"
)


class CurvePoint(NamedTuple):
    """A parameter's value (as text), the score there, and its interval."""

    label: str
    value: float
    low: float
    high: float


def curve(
    points: Sequence[CurvePoint],
    *,
    across: str,
    up: str,
    standalone: bool = False,
    width: int = 640,
    height: int = 320,
) -> Markup:
    """Draw the points in order, joined, with a band of their intervals; fractions as percents.

    `standalone` adds colours and a background, for a file of its own.
    """
    left, right, top, bottom = 56, width - 18, 30, height - 44
    low = max(0.0, min(point.low for point in points) - 0.02)
    high = max(point.high for point in points) + 0.02
    positions = _positions([point.label for point in points])

    def x(index: int) -> float:
        return left + positions[index] * (right - left)

    def y(value: float) -> float:
        return bottom - (value - low) / max(high - low, 1e-9) * (bottom - top)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{escape(up)} over {escape(across)}">',
        _STYLE if standalone else "",
    ]
    for step in range(5):
        value = low + (high - low) * step / 4
        parts.append(
            f'<line class="grid" x1="{left}" x2="{right}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
            f'<text class="tick" x="{left - 8}" y="{y(value) + 4:.1f}" '
            f'style="text-anchor:end">{100 * value:.1f}</text>'
        )
    upper = [f"{x(i):.1f},{y(point.high):.1f}" for i, point in enumerate(points)]
    lower = [f"{x(i):.1f},{y(point.low):.1f}" for i, point in enumerate(points)]
    middle = [f"{x(i):.1f},{y(point.value):.1f}" for i, point in enumerate(points)]
    parts.append(f'<polygon class="band" points="{" ".join([*upper, *reversed(lower)])}"/>')
    parts.append(f'<polyline class="line" points="{" ".join(middle)}"/>')
    for index, point in enumerate(points):
        parts.append(
            f'<circle class="dot" cx="{x(index):.1f}" cy="{y(point.value):.1f}" r="3.5">'
            f"<title>{escape(across)} {escape(point.label)}: {100 * point.value:.1f} "
            f"[{100 * point.low:.1f}, {100 * point.high:.1f}]</title></circle>"
            f'<text class="tick" x="{x(index):.1f}" y="{bottom + 18}" '
            f'style="text-anchor:middle">{escape(point.label)}</text>'
        )
    parts.append(
        f'<text x="{(left + right) / 2}" y="{height - 8}" style="text-anchor:middle">'
        f'{escape(across)}</text><text x="4" y="12">{escape(up)} (%)</text></svg>'
    )
    return Markup("".join(parts))


def _positions(labels: Sequence[str]) -> list[float]:
    """Numbers stand where they belong; anything else at equal distances."""
    try:
        values = [float(label) for label in labels]
    except ValueError:
        values = [float(index) for index in range(len(labels))]
    low, high = min(values), max(values)
    if high == low:
        return [0.5] * len(values)
    return [(value - low) / (high - low) for value in values]
