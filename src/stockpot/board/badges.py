"""A score as a small picture, for a README."""

from __future__ import annotations

from html import escape

from stockpot.charts.canvas import fitted, width_of

_SIZE = 11.0
_MOST = 260.0


def badge(label: str, value: str, *, good: bool | None = None) -> str:
    """Two fields side by side, as SVG; a good value is green, one that is not is grey.

    Args:
        label: on the left.
        value: on the right.
        good: whether it is among the best; None where no direction is better.
    """
    label, value = fitted(label, _MOST, _SIZE), fitted(value, _MOST, _SIZE)
    left, right = (round(width_of(words, _SIZE)) + 12 for words in (label, value))
    colour = "#2c7a5a" if good else "#2a6f97" if good is None else "#5c6660"
    words = escape(f"{label}: {value}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" '
        f'aria-label="{words}"><title>{words}</title>'
        f'<rect width="{left + right}" height="20" rx="3" fill="#3a403d"/>'
        f'<path d="M{left} 0h{right - 3}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3h-{right - 3}z" '
        f'fill="{colour}"/>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="{_SIZE:g}" '
        f'text-anchor="middle"><text x="{left / 2:g}" y="14">{escape(label)}</text>'
        f'<text x="{left + right / 2:g}" y="14">{escape(value)}</text></g></svg>\n'
    )
