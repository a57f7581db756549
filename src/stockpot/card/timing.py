"""How many images each measure gets: timed on a few, not guessed.

Every measure runs on a few images and then on a few more. The difference gives the seconds for an
image, the rest is what it takes whatever the number (models and generators that are loaded). The
budget is then dealt out by shares; what a measure cannot use, because there are no more images,
goes to the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from stockpot.card.preset import Asked


class Pace(NamedTuple):
    """What a measure takes: seconds whatever the number of images, and seconds for each."""

    fixed: float
    each: float

    def seconds(self, images: int) -> float:
        """For so many images."""
        return self.fixed + self.each * images


def pace(run: Callable[[int], float], sizes: tuple[int, int], there: int) -> Pace:
    """The pace of a measure.

    Args:
        run: measures so many images and gives the seconds.
        sizes: images of the first and of the second pass.
        there: how many images there are.
    """
    few, more = (min(size, there) for size in sizes)
    first = run(few)
    if more == few:
        return Pace(0.0, first / few)
    second = run(more)
    # What was loaded in the first pass is kept for the second, which may therefore be the shorter.
    each = (second - first) / (more - few)
    each = each if each > 0 else second / more
    return Pace(max(0.0, second - each * more), each)


class Dealt(NamedTuple):
    """How many images each measure gets, and why some get none."""

    images: dict[str, int]
    left_out: dict[str, str]


def deal(asked: Sequence[Asked], paces: Mapping[str, Pace], there: int, budget: float) -> Dealt:
    """Share out a budget of seconds.

    Args:
        asked: the measures.
        paces: of those that could be timed.
        there: how many images there are.
        budget: seconds for all of them.
    """
    open_ones = {one.measure: one for one in asked if one.measure in paces}
    left_out: dict[str, str] = {}
    for one in list(open_ones.values()):
        least = min(one.least, most(one, there))
        needed = paces[one.measure].seconds(least)
        # A measure may take twice its share to be there at all; the others give way.
        if needed > 2 * one.share * budget:
            minutes = math.ceil(needed / (2 * one.share) / 60) + 1  # and for the timing itself
            left_out[one.measure] = (
                f"{least} images would take {needed:.0f} s; --minutes {minutes} has room for it"
            )
            del open_ones[one.measure]
    images: dict[str, int] = {}
    while open_ones:
        shares = sum(one.share for one in open_ones.values())
        own = {
            name: _images(one, paces[name], budget * one.share / shares, there)
            for name, one in open_ones.items()
        }
        full = [name for name, count in own.items() if count >= most(open_ones[name], there)]
        settled = full or list(own)
        for name in settled:
            images[name] = own[name]
            budget -= paces[name].seconds(own[name])
            del open_ones[name]
        budget = max(budget, 0.0)
    order = [one.measure for one in asked]
    return Dealt({name: images[name] for name in order if name in images}, left_out)


def _images(one: Asked, pace: Pace, seconds: float, there: int) -> int:
    room = int((seconds - pace.fixed) / max(pace.each, 1e-9))
    return min(max(room, one.least), most(one, there))


def most(one: Asked, there: int) -> int:
    """The most images that a measure can use."""
    return there if one.most is None else min(one.most, there)
