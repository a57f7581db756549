"""A frame that places values on a sheet, with round numbers along both sides."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from stockpot.charts.canvas import Canvas, Place, width_of

Marks = Sequence[tuple[float, str]]
"""Places along an axis, and what is written there."""


class Axes:
    """A frame that places values; `logarithmic` says that equal factors are equally far apart."""

    def __init__(
        self,
        canvas: Canvas,
        across: tuple[float, float],
        up: tuple[float, float],
        *,
        aside: float = 16.0,
        logarithmic: bool = False,
    ) -> None:
        """Values from `across[0]` to `across[1]`; `aside` leaves room on the right for words."""
        self.canvas = canvas
        self.across, self.up, self.logarithmic = across, up, logarithmic
        self.left, self.right = 54.0, canvas.width - aside
        self.top, self.bottom = 34.0, canvas.height - 44.0

    def at(self, x: float, y: float) -> Place:
        """Where a pair of values lies."""
        low, high, x = (math.log10(v) if self.logarithmic else v for v in (*self.across, x))
        across = (x - low) / max(high - low, 1e-9)
        up = (y - self.up[0]) / max(self.up[1] - self.up[0], 1e-9)
        return (
            self.left + across * (self.right - self.left),
            self.bottom - up * (self.bottom - self.top),
        )

    def frame(
        self, across: str, up: str, marks: Marks, write: Callable[[float], str] | None = None
    ) -> None:
        """Grid lines, numbers and the names of the axes.

        Args:
            across: what runs from left to right.
            up: what runs upwards.
            marks: places from left to right; those whose words would touch are left out.
            write: a number upwards as text; shares are written as percents.
        """
        canvas = self.canvas
        for value in ticks(*self.up):
            here = self.at(self.across[0], value)
            canvas.path([here, self.at(self.across[1], value)], "line", width=1)
            words = (write or percent)(value)
            canvas.text((here[0] - 6, here[1] + 4), words, anchor="end", colour="soft", size=11)
        end = -math.inf
        for value, words in marks:
            x, half = self.at(value, self.up[0])[0], width_of(words, 11) / 2
            canvas.path([(x, self.top), (x, self.bottom)], "line", width=1)
            if x - half > end:
                canvas.text((x, self.bottom + 16), words, anchor="middle", colour="soft", size=11)
                end = x + half + 3
        canvas.text(((self.left + self.right) / 2, canvas.height - 10), across, anchor="middle")
        canvas.text((6, 18), up)


def ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Round numbers from low to high, at most so many."""
    wide = max(high - low, 1e-9)
    size = 10.0 ** math.floor(math.log10(wide / most))
    step = next(size * k for k in (1, 2, 5, 10, 20) if math.floor(wide / (size * k) + 1e-9) < most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(step * k, 12) for k in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten from low to high."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [k * 10.0**power for power in powers for k in (1, 2, 5)]
    return [value for value in found if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]


def percent(value: float) -> str:
    """A share as a percent without needless digits."""
    return f"{round(100 * value, 6):g}"


def span(values: Sequence[float], margin: float = 0.01) -> tuple[float, float]:
    """A range of shares that holds all values, with some room."""
    low, high = max(0.0, min(values) - margin), max(max(values) + margin, margin)
    # Nothing lies above 100 % but ratios, which say so themselves.
    return low, min(1.0, high) if max(values) <= 1 else high
