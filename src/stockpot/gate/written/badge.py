"""A badge: what was checked, and what came out, as a small SVG picture with its text inside."""

from __future__ import annotations

from html import escape

from stockpot.gate.outcome import Checked

_HEIGHT, _PAD = 20, 7
_COLOURS = {"passed": "#2a7a3b", "failed": "#b3261e", "undecided": "#8a6100"}
"""White text on each has a contrast of at least 4.5 to 1."""


def badge(checked: Checked, label: str = "robustness") -> str:
    """The picture."""
    total, held = len(checked.outcomes), checked.counted("holds")
    if checked.counted("fails"):
        state, text = "failed", f"{checked.counted('fails')} of {total} failed"
    elif checked.counted("not decided"):
        state, text = "undecided", f"{held} of {total} held"
    else:
        state, text = "passed", f"{total} of {total} held"
    left, right = _width(label), _width(text)
    whole = left + right
    said = escape(f"{label}: {text}", quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="{_HEIGHT}" role="img" '
        f'aria-label="{said}"><title>{said}</title>'
        f'<clipPath id="r"><rect width="{whole}" height="{_HEIGHT}" rx="3"/></clipPath>'
        f'<g clip-path="url(#r)"><rect width="{left}" height="{_HEIGHT}" fill="#444"/>'
        f'<rect x="{left}" width="{right}" height="{_HEIGHT}" fill="{_COLOURS[state]}"/></g>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f"{_text(label, _PAD, left)}{_text(text, left + _PAD, right)}</g></svg>\n"
    )


def _text(text: str, x: float, width: float) -> str:
    # The length is set, so that it fits whatever font there is.
    inner = width - 2 * _PAD
    return f'<text x="{x}" y="14" textLength="{inner}">{escape(text)}</text>'


def _width(text: str) -> int:
    """About as wide as Verdana at 11 px is."""
    narrow = sum(letter in "fijlrt.,:;|!()[] " for letter in text)
    return round(6.9 * (len(text) - narrow) + 4.0 * narrow) + 2 * _PAD
