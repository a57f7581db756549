"""What the best soups are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stockpot.charts import Canvas, shade
from stockpot.season.matrix import Matrix

LEVELS = (-0.4, -0.2, 0.2, 0.4, 0.6, 0.8, 1.0)
_CELL, _LEFT, _TOP = 26, 150, 64


def composition(
    matrices: Mapping[str, Matrix],
    names: Sequence[str],
    *,
    title: str,
    count: int = 5,
    levels: Sequence[float] = LEVELS,
) -> str:
    """For each dataset and member: the share of the best soups that hold at least that much of it.

    Below zero it is the share that holds at most that much.

    Args:
        matrices: a matrix for each dataset, over the same soups.
        names: of the members.
        title: of the picture.
        count: how many soups are the best.
        levels: weights that are asked for.
    """
    block = _CELL * len(levels) + 22
    canvas = Canvas(_LEFT + block * len(names), _TOP + _CELL * len(matrices) + 24, title)
    canvas.text((10, 18), title)
    for column, name in enumerate(names):
        left = _LEFT + column * block
        canvas.text((left, 38), name, room=block - 8)
        for index, level in enumerate(levels):
            at = (left + index * _CELL + _CELL / 2, _TOP - 6)
            canvas.text(at, f"{level:g}", anchor="middle", colour="soft", size=9)
    for row, (dataset, matrix) in enumerate(matrices.items()):
        y = _TOP + row * _CELL
        canvas.text((_LEFT - 8, y + 17), dataset, anchor="end", size=11)
        shares = matrix.composition(list(levels), count)
        for column in range(len(names)):
            for index in range(len(levels)):
                at = (_LEFT + column * block + index * _CELL, y)
                colour = shade(float(shares[index, column]), 0, 1)
                canvas.box(at, _CELL - 1, _CELL - 1, colour)
    return canvas.svg()
