"""Constants between two severities: a severity is a number from 1 to 5, whole or not.

Between two whole severities every constant is a number on the straight line between its two. Counts
and lengths in whole pixels are rounded. Where two neighbouring severities are different things
there is nothing in between, and that is said.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from stockpot.corrupt import SEVERITIES
from stockpot.corrupt.constants import Constants, Rows
from stockpot.errors import BadParameterError

_WHOLE: dict[str, tuple[int, ...]] = {
    "shot_noise": (0,),
    "glass_blur": (1, 2),
    "motion_blur": (0,),
    "snow": (4,),
    "jpeg_compression": (0,),
    "geometric_shapes": (0,),
    "stickers": (0,),
    "vertical_lines": (0, 1),
}
"""Which constants are counts or whole pixels."""

_Apart = Callable[[Constants, Constants], bool]
_APART: dict[str, tuple[str, _Apart]] = {
    "spatter": ("one is water and the other mud", lambda low, high: low[5] != high[5]),
    "saturate": (
        "one is paler than the picture and the other more garish",
        lambda low, high: (low[0] < 1) != (high[0] < 1),
    ),
    "glass_blur": (
        "their steps and passes are different whole numbers",
        lambda low, high: low[1:] != high[1:],
    ),
    "elastic_transform": (
        "they bend at different scales",
        lambda low, high: low[1] != high[1],
    ),
}
"""Where two severities are different things, and why."""


def constants_at(name: str, rows: Rows, severity: float) -> Constants:
    """The constants of one corruption at a severity from 1 to 5."""
    first, last = SEVERITIES[0], SEVERITIES[-1]
    is_number = isinstance(severity, int | float | np.number)
    # NaN lies nowhere.
    if not is_number or isinstance(severity, bool) or not first <= severity <= last:
        raise BadParameterError(f"severity: expected a number from 1 to 5, got {severity!r}.")
    below = math.floor(severity)
    share = severity - below
    if not share:
        return rows[below - 1]
    low, high = rows[below - 1], rows[below]
    why, apart = _APART.get(name, ("", lambda low, high: False))
    if apart(low, high):
        raise BadParameterError(
            f"severity: {name} has nothing between {below} and {below + 1}: {why}; got {severity}.",
            hint="Take a whole number there.",
        )
    mixed = [one + share * (two - one) for one, two in zip(low, high, strict=True)]
    whole = _WHOLE.get(name, ())
    return tuple(
        float(round(value)) if place in whole else value for place, value in enumerate(mixed)
    )


def plain(severity: float) -> int | float:
    """A whole severity as a whole number, so that 3.0 is called 3 in every name and draw."""
    return int(severity) if float(severity).is_integer() else severity
