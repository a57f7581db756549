"""A sheet to draw on: SVG elements in the palette's colours, and words that stay inside."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from stockpot.charts.palette import DARK, LIGHT, series, stylesheet
from stockpot.files import write_atomic

Place = tuple[float, float]
"""Where on the sheet: to the right and down."""
_NARROW, _WIDE = frozenset("iljtfr.,:;|!'()[] I-"), frozenset("mwMW@%")


class Canvas:
    """Elements of one picture, in the order in which they are drawn.

    A colour is a name of the palette (`ink`, `soft`, `series-0`, ...), which has a light and a dark
    look, or `#rrggbb`, which is the same in both.
    """

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self._parts: list[str] = []

    def text(
        self,
        at: Place,
        words: str,
        *,
        anchor: str = "start",
        colour: str = "ink",
        size: float = 12,
        bold: bool = False,
        turned: bool = False,
        room: float = float("inf"),
    ) -> None:
        """Words at a point; what is longer than the room for it is shortened in its middle.

        Args:
            at: where the line of writing is anchored.
            words: what to write.
            anchor: `start`, `middle` or `end`.
            colour: of the letters.
            size: of the letters.
            bold: whether they are.
            turned: written upwards from its start.
            room: the most that it may take; never more than the sheet has.
        """
        left, right = at[0], self.width - at[0]
        free = {"start": right, "end": left, "middle": 2 * min(left, right)}[anchor]
        shown = fitted(words, min(room, (at[1] if turned else free) - 3), size)
        place = (
            f'transform="translate({at[0]:.1f},{at[1]:.1f}) rotate(-90)"'
            if turned
            else f'x="{at[0]:.1f}" y="{at[1]:.1f}"'
        )
        weight = ' font-weight="700"' if bold else ""
        note = "" if shown == words else f"<title>{escape(words)}</title>"
        self._parts.append(
            f'<text {place} text-anchor="{anchor}" {_paint("fill", colour)} font-size="{size:g}"'
            f"{weight}>{note}{escape(shown)}</text>"
        )

    def beside(self, at: Place, words: str, *, colour: str = "soft") -> None:
        """Words to the right of a point, or to its left where the sheet ends."""
        fits = at[0] + 10 + width_of(words, 12) < self.width
        self.text((at[0] + (7 if fits else -7), at[1] + 4), words, colour=colour,
                  anchor="start" if fits else "end")  # fmt: skip

    def path(
        self, points: Sequence[Place], colour: str, *, width: float = 1.6, round: bool = False
    ) -> None:
        """Points joined by a line."""
        caps = ' stroke-linecap="round"' if round else ""
        self._parts.append(
            f'<polyline points="{_joined(points)}" fill="none" {_paint("stroke", colour)} '
            f'stroke-width="{width:g}"{caps}/>'
        )

    def area(self, points: Sequence[Place], colour: str, opacity: float = 0.16) -> None:
        """A filled polygon."""
        self._parts.append(
            f'<polygon points="{_joined(points)}" {_paint("fill", colour)} opacity="{opacity:g}"/>'
        )

    def dot(self, at: Place, colour: str, radius: float = 3.5, note: str = "") -> None:
        """A disc; the note is shown when the pointer rests on it."""
        self._parts.append(
            f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="{radius:g}" '
            f"{_paint('fill', colour)}>{_note(note)}</circle>"
        )

    def box(self, at: Place, width: float, height: float, colour: str, note: str = "") -> None:
        """A filled rectangle."""
        self._parts.append(
            f'<rect x="{at[0]:.1f}" y="{at[1]:.1f}" width="{width:.1f}" height="{height:.1f}" '
            f"{_paint('fill', colour)}>{_note(note)}</rect>"
        )

    def legend(self, at: Place, names: Sequence[str]) -> None:
        """One coloured line of words per name, downwards, in the order of the series."""
        for index, name in enumerate(names):
            y = at[1] + 16 * index
            self.dot((at[0], y - 4), series(index))
            self.text((at[0] + 8, y), name, colour=series(index))

    def svg(self, *, dark: bool = False) -> str:
        """The picture as a file of its own.

        It follows the reader's look where a browser shows it; what cannot ask (a converter to
        pixels) gets the light one, or the dark one on request.
        """
        body = [
            f"<title>{escape(self.title)}</title>",
            f"<style>{stylesheet()}</style>",
            f'<rect width="{self.width:g}" height="{self.height:g}" {_paint("fill", "paper")}/>',
            *self._parts,
        ]
        size = f'width="{self.width:g}" height="{self.height:g}"'
        return f"{self._open(size)}\n{_coloured(body, DARK if dark else LIGHT)}\n</svg>\n"

    def inline(self) -> str:
        """The picture as a part of a page, whose style sheet colours it."""
        opened = self._open('class="chart"')
        return f"{opened}{_coloured(self._parts, LIGHT)}</svg>"

    def _open(self, more: str) -> str:
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'{more} role="img" aria-label="{escape(self.title)}" '
            f'font-family="system-ui,sans-serif" font-size="12">'
        )


def save(canvas: Canvas, path: str | Path) -> Path:
    """Write a picture as an SVG file, whole or not at all."""
    path = Path(path)
    write_atomic(path, canvas.svg())
    return path


def width_of(words: str, size: float) -> float:
    """About how wide words are; fonts differ, so rather too much than too little."""
    # Those of DejaVu Sans, which is among the widest that a reader may have.
    units = (0.42 if c in _NARROW else 0.98 if c in _WIDE else 1.0 if ord(c) > 0x2E7F
             else 0.7 if c.isupper() else 0.64 for c in words)  # fmt: skip
    return size * sum(units)


def fitted(words: str, room: float, size: float) -> str:
    """The words, or their beginning and end where the whole is too wide: names differ at both."""
    if width_of(words, size) <= room:
        return words
    for kept in range(len(words) - 1, 1, -1):
        head = (kept + 1) // 2
        short = f"{words[:head]}…{words[len(words) - (kept - head) :]}"
        if width_of(short, size) <= room:
            return short
    return "…"


def _paint(what: str, colour: str) -> str:
    """The colour of a look as an attribute, and a class by which a style sheet may change it."""
    return (
        f'{what}="{colour}"' if colour[0] == "#" else f'class="{what}-{colour}" {what}="@{colour}"'
    )


def _coloured(parts: Sequence[str], look: dict[str, str]) -> str:
    text = "\n".join(parts)
    # Words of users hold no bare quotation marks, so this replaces attributes alone.
    for name, colour in look.items():
        text = text.replace(f'="@{name}"', f'="{colour}"')
    return text


def _note(words: str) -> str:
    return f"<title>{escape(words)}</title>" if words else ""


def _joined(points: Sequence[Place]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
