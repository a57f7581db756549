"""Soups of three members: a triangle with a member in each corner, coloured by score."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from stockpot.season.matrix import Matrix
from stockpot.season.plots.canvas import PALE, Canvas, Point, shade

_SIDE, _PANEL, _HEADER = 240.0, 330, 44


def triangle(
    matrices: Mapping[str, Matrix],
    rows: Sequence[int],
    members: tuple[int, int, int],
    names: Sequence[str],
    *,
    title: str,
) -> str:
    """One panel for each condition; each soup is a disc with its score, the best one ringed.

    Args:
        matrices: a matrix for each condition (a threat, their union, clean), over the same soups.
        rows: the convex soups of the three members.
        members: the columns of the three members' weights.
        names: of the three members.
        title: of the picture.
    """
    canvas = Canvas(_PANEL * len(matrices), _HEADER + 300, title)
    canvas.text((10, 18), title)
    for index, (condition, matrix) in enumerate(matrices.items()):
        corner = (index * _PANEL + 45.0, _HEADER + 240.0)
        _panel(canvas, corner, condition, matrix, list(rows), members, names)
    return canvas.svg()


def _panel(
    canvas: Canvas,
    corner: Point,
    condition: str,
    matrix: Matrix,
    rows: list[int],
    members: tuple[int, int, int],
    names: Sequence[str],
) -> None:
    ends = [_place(corner, share) for share in np.eye(3)]
    canvas.path([*ends, ends[0]], "#dcdad2")
    scores = matrix.accuracy()[rows]
    best = int(scores.argmax())
    canvas.text((corner[0] - 30, _HEADER - 6), f"{condition}: {100 * scores[best]:.1f} % at best")
    for index, row in enumerate(rows):
        shares = matrix.weights[row][list(members)]
        at = _place(corner, shares)
        words = ", ".join(f"{n} {w:g}" for n, w in zip(names, shares, strict=True))
        note = f"{words}: {100 * scores[index]:.1f} %"
        if index == best:
            canvas.dot(at, "#1f2421", 17, note)
        canvas.dot(at, shade(scores[index], scores.min(), scores.max()), 14, note)
        dark = scores[index] > (scores.min() + scores.max()) / 2
        canvas.text(
            (at[0], at[1] + 4), f"{100 * scores[index]:.0f}", anchor="middle",
            colour="#ffffff" if dark else "#1f2421", size=11,
        )  # fmt: skip
    for end, name, (x, y) in zip(ends, names, ((-6, 32), (6, 32), (0, -22)), strict=True):
        canvas.text((end[0] + x, end[1] + y), name, anchor="middle", colour=PALE)


def _place(corner: Point, shares: Sequence[float] | np.ndarray) -> Point:
    """The first member is below on the left, the second on the right, the third above."""
    _, second, third = (float(share) for share in shares)
    return (
        corner[0] + _SIDE * (second + third / 2),
        corner[1] - _SIDE * third * math.sqrt(3) / 2,
    )
