"""A matrix of numbers from -1 to 1 as a small SVG picture, with the numbers in it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

_CELL = 46
_LOW, _MIDDLE, _HIGH = (33, 102, 172), (247, 247, 247), (178, 24, 43)


def heat_map(values: Sequence[Sequence[float]], names: Sequence[str], *, title: str) -> str:
    """Draw a square matrix; blue is -1, white 0, red 1."""
    margin = 12 + 7 * max((len(name) for name in names), default=1)
    side = margin + _CELL * len(names) + 12
    height = side + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{side}" height="{height}" '
        f'viewBox="0 0 {side} {height}" role="img" font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{side}" height="{height}" fill="white"/>',
        f'<text x="8" y="18" font-weight="bold">{escape(title)}</text>',
    ]
    for row, (name, line) in enumerate(zip(names, values, strict=True)):
        y = 24 + margin + row * _CELL
        parts.append(f'<text x="{margin - 6}" y="{y + 28}" text-anchor="end">{escape(name)}</text>')
        x = margin + row * _CELL + 28
        parts.append(
            f'<text transform="translate({x},{24 + margin - 6}) rotate(-90)">{escape(name)}</text>'
        )
        for column, value in enumerate(line):
            ink = "white" if abs(value) > 0.7 else "black"
            left = margin + column * _CELL
            parts.append(
                f'<rect x="{left}" y="{y}" width="{_CELL}" height="{_CELL}" '
                f'fill="{_colour(value)}"/>'
                f'<text x="{left + _CELL // 2}" y="{y + 28}" text-anchor="middle" '
                f'fill="{ink}">{value:.2f}</text>'
            )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _colour(value: float) -> str:
    end = _HIGH if value > 0 else _LOW
    share = min(abs(value), 1.0)
    mixed = (round(m + (e - m) * share) for m, e in zip(_MIDDLE, end, strict=True))
    return "#{:02x}{:02x}{:02x}".format(*mixed)
