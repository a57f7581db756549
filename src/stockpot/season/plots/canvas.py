"""A sheet to draw on: SVG elements, and axes that place values on them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

INK, PALE, PAPER = "#1f2421", "#66706a", "#fbfaf7"
COLOURS = ("#b4532a", "#2a6f97", "#5a7d2a", "#7b4b94", "#b08900", "#4d5a66")
Point = tuple[float, float]


class Canvas:
    """Elements of one picture, in the order in which they are drawn."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height = width, height
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            f'aria-label="{escape(title)}" font-family="system-ui,sans-serif" font-size="12">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width}" height="{height}" fill="{PAPER}"/>',
        ]

    def text(
        self, at: Point, words: str, *, anchor: str = "start", colour: str = INK, size: int = 12
    ) -> None:
        """Words at a point; `anchor` is start, middle or end."""
        self._parts.append(
            f'<text x="{at[0]:.1f}" y="{at[1]:.1f}" text-anchor="{anchor}" fill="{colour}" '
            f'font-size="{size}">{escape(words)}</text>'
        )

    def path(self, points: Sequence[Point], colour: str, *, dashed: bool = False) -> None:
        """Points joined by a line."""
        dashes = ' stroke-dasharray="4 4"' if dashed else ""
        self._parts.append(
            f'<polyline points="{_joined(points)}" fill="none" stroke="{colour}" '
            f'stroke-width="1.6"{dashes}/>'
        )

    def area(self, points: Sequence[Point], colour: str, opacity: float = 0.16) -> None:
        """A filled polygon."""
        self._parts.append(
            f'<polygon points="{_joined(points)}" fill="{colour}" opacity="{opacity}"/>'
        )

    def dot(self, at: Point, colour: str, radius: float = 3.5, note: str = "") -> None:
        """A disc; the note is shown when the pointer rests on it."""
        self._parts.append(
            f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="{radius}" fill="{colour}">'
            f"<title>{escape(note)}</title></circle>"
        )

    def box(self, at: Point, width: float, height: float, colour: str) -> None:
        """A filled rectangle."""
        self._parts.append(
            f'<rect x="{at[0]:.1f}" y="{at[1]:.1f}" width="{width:.1f}" height="{height:.1f}" '
            f'fill="{colour}"/>'
        )

    def legend(self, at: Point, names: Sequence[str]) -> None:
        """One coloured line of words per name, downwards."""
        for index, name in enumerate(names):
            y = at[1] + 16 * index
            colour = COLOURS[index % len(COLOURS)]
            self.dot((at[0], y - 4), colour)
            self.text((at[0] + 8, y), name, colour=colour)

    def svg(self) -> str:
        """The picture as a file's text."""
        return "\n".join([*self._parts, "</svg>"]) + "\n"


class Axes:
    """A frame that places values; both axes are linear, and shares are written as percents."""

    def __init__(
        self,
        canvas: Canvas,
        across: tuple[float, float],
        up: tuple[float, float],
        *,
        aside: float = 16.0,
    ) -> None:
        """Values from `across[0]` to `across[1]`; `aside` leaves room on the right for words."""
        self.canvas = canvas
        self.across, self.up = across, up
        self.left, self.right = 54.0, canvas.width - aside
        self.top, self.bottom = 34.0, canvas.height - 44.0

    def at(self, x: float, y: float) -> Point:
        """Where a pair of values lies."""
        across = (x - self.across[0]) / max(self.across[1] - self.across[0], 1e-9)
        up = (y - self.up[0]) / max(self.up[1] - self.up[0], 1e-9)
        return (
            self.left + across * (self.right - self.left),
            self.bottom - up * (self.bottom - self.top),
        )

    def frame(
        self, across: str, up: str, marks: Sequence[tuple[float, str]], *, percents_up: int = 5
    ) -> None:
        """Grid lines, numbers and the names of the axes; `marks` are places along x."""
        canvas = self.canvas
        for step in range(percents_up):
            value = self.up[0] + (self.up[1] - self.up[0]) * step / (percents_up - 1)
            here = self.at(self.across[0], value)
            canvas.path([here, self.at(self.across[1], value)], "#dcdad2")
            canvas.text(
                (here[0] - 6, here[1] + 4), f"{100 * value:.0f}", anchor="end", colour=PALE, size=11
            )
        for value, words in marks:
            x = self.at(value, self.up[0])[0]
            canvas.text((x, self.bottom + 16), words, anchor="middle", colour=PALE, size=11)
        middle = (self.left + self.right) / 2
        canvas.text((middle, canvas.height - 10), across, anchor="middle")
        canvas.text((6, 18), up)


def span(values: Sequence[float], margin: float = 0.01) -> tuple[float, float]:
    """A range of shares that holds all values, with some room."""
    return max(0.0, min(values) - margin), min(1.0, max(values) + margin)


def shade(value: float, low: float, high: float) -> str:
    """A colour from pale to dark as the value goes from low to high."""
    share = 0.0 if high <= low else min(max((value - low) / (high - low), 0.0), 1.0)
    pale, dark = (246, 235, 226), (140, 55, 20)
    mixed = (round(p + (d - p) * share) for p, d in zip(pale, dark, strict=True))
    return "#{:02x}{:02x}{:02x}".format(*mixed)


def _joined(points: Sequence[Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
