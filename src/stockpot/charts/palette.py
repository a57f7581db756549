"""The colours of every picture and page, by what they are for, in a light and a dark look."""

from __future__ import annotations

from collections.abc import Iterator

Look = dict[str, str]
LIGHT: Look = {
    "paper": "#fbfaf7", "ink": "#1f2421", "soft": "#66706a", "line": "#dcdad2", "card": "#ffffff",
    "accent": "#b4532a", "accent-soft": "#e9b79d",
    "series-0": "#b4532a", "series-1": "#2a6f97", "series-2": "#5a7d2a", "series-3": "#7b4b94",
    "series-4": "#a07c00", "series-5": "#4d5a66", "series-6": "#a8326b", "series-7": "#1f7f74",
}  # fmt: skip
DARK: Look = {
    "paper": "#16191a", "ink": "#e9e7e1", "soft": "#9aa39d", "line": "#333937", "card": "#1d2122",
    "accent": "#e08a5f", "accent-soft": "#7a4a34",
    "series-0": "#e08a5f", "series-1": "#6fb2d9", "series-2": "#9cc262", "series-3": "#bb92d6",
    "series-4": "#e0b93a", "series-5": "#a3b0bb", "series-6": "#e07aa8", "series-7": "#5fc4b6",
}  # fmt: skip
_PALE, _DEEP = (246, 235, 226), (140, 55, 20)
_BELOW, _MIDDLE, _ABOVE = (33, 102, 172), (247, 247, 247), (178, 24, 43)


def series(index: int) -> str:
    """The colour of the n-th of several things; they begin again after eight."""
    return f"series-{index % 8}"


def stylesheet() -> str:
    """Rules for a picture that stands alone: light unless the reader's screen is dark."""
    return f"@media (prefers-color-scheme: dark){{{''.join(_rules(DARK))}}}"


def page_colours() -> str:
    """The same for a page: its variables, and what the charts in it take from them."""
    light = "".join(f"--{name}:{colour};" for name, colour in LIGHT.items())
    dark = "".join(f"--{name}:{colour};" for name, colour in DARK.items())
    named = {name: f"var(--{name})" for name in LIGHT}
    # On paper everything is light; on a screen a reader's choice (`data-look`) comes before theirs.
    return (
        f":root{{{light}}}\n@media screen and (prefers-color-scheme: dark)"
        f'{{:root:not([data-look="light"]){{{dark}}}}}\n'
        f'@media screen{{:root[data-look="dark"]{{{dark}}}}}\n'
        + "\n".join(f".chart {rule}" for rule in _rules(named))
    )


def _rules(look: Look) -> Iterator[str]:
    for name, colour in look.items():
        yield f".fill-{name}{{fill:{colour}}}"
        yield f".stroke-{name}{{stroke:{colour}}}"


def shade(value: float, low: float, high: float) -> str:
    """A colour from pale to deep as the value goes from low to high."""
    share = 0.0 if high <= low else min(max((value - low) / (high - low), 0.0), 1.0)
    return _mixed(_PALE, _DEEP, share)


def two_sided(value: float) -> str:
    """Blue at -1, white at 0, red at 1."""
    return _mixed(_MIDDLE, _ABOVE if value > 0 else _BELOW, min(abs(value), 1.0))


def ink_on(colour: str) -> str:
    """Black or white, whichever is read more easily on a colour (`#rrggbb`)."""
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "#1f2421" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#ffffff"


def _mixed(start: tuple[int, ...], end: tuple[int, ...], share: float) -> str:
    mixed = (round(a + (b - a) * share) for a, b in zip(start, end, strict=True))
    return "#{:02x}{:02x}{:02x}".format(*mixed)
