"""Soups of two members: scores along the line through them, and one score against another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from stockpot.charts import Axes, Canvas, Spot, lines, series, span, ticks
from stockpot.results.statistics import share_interval
from stockpot.season.matrix import Matrix


def along_line(
    matrices: Mapping[str, Matrix], rows: Sequence[int], member: int, *, title: str, across: str
) -> str:
    """Scores of several conditions over one member's weight, with 95 % bands.

    What lies outside [0, 1] is extrapolation and stands on a grey ground.

    Args:
        matrices: a matrix for each condition, over the same soups.
        rows: the soups on the line.
        member: the column of the weight that is drawn from left to right.
        title: of the picture.
        across: what the weight is of.
    """
    weights = next(iter(matrices.values())).weights[list(rows), member]
    order = np.argsort(weights, kind="stable")
    chosen, places = np.asarray(rows)[order], weights[order]
    drawn = {
        name: [Spot(float(x), y, low, high, f"weight {x:g}: {100 * y:.1f} %")
               for x, (low, y, high) in zip(places, _bands(matrix, chosen), strict=True)]
        for name, matrix in matrices.items()
    }  # fmt: skip
    marks = [(float(w), f"{w:g}") for w in places]
    return lines(drawn, across=across, up=title, marks=marks, known=(0.0, 1.0)).svg()


def trade_off(
    across: Matrix,
    up: Matrix,
    drawn: Mapping[str, Sequence[int]],
    *,
    names: tuple[str, str],
    title: str,
    others: Mapping[str, tuple[float, float]] | None = None,
) -> str:
    """One score against another as the weight runs along each line.

    Args:
        across: the condition drawn from left to right.
        up: the condition drawn upwards, over the same soups.
        drawn: the soups of each line, in order.
        names: of the two conditions.
        title: of the picture.
        others: models that are no soups, as pairs of scores.
    """
    x, y = across.accuracy(), up.accuracy()
    used = [row for rows in drawn.values() for row in rows]
    extra = list((others or {}).values())
    canvas = Canvas(600, 420, title)
    axes = Axes(
        canvas,
        span([*x[used], *(pair[0] for pair in extra)]),
        span([*y[used], *(pair[1] for pair in extra)]),
        aside=110,
    )
    marks = [(value, f"{100 * value:g}") for value in ticks(*axes.across)]
    axes.frame(f"{names[0]} (%)", f"{names[1]} (%)", marks)
    for index, rows in enumerate(drawn.values()):
        colour = series(index)
        path = [axes.at(x[row], y[row]) for row in rows]
        canvas.path(path, colour)
        for point, row in zip(path, rows, strict=True):
            weights = ", ".join(f"{weight:g}" for weight in across.weights[row])
            canvas.dot(point, colour, note=f"{weights}: {100 * x[row]:.1f}, {100 * y[row]:.1f} %")
    for name, pair in (others or {}).items():
        point = axes.at(*pair)
        canvas.dot(point, "soft", radius=5, note=f"{100 * pair[0]:.1f}, {100 * pair[1]:.1f} %")
        canvas.beside(point, name)
    canvas.legend((axes.right + 16, axes.top + 12), list(drawn))
    return canvas.svg()


def _bands(matrix: Matrix, rows: NDArray[np.intp]) -> list[tuple[float, float, float]]:
    """Low end, accuracy and high end of each soup."""
    found = [(flags.mean(), share_interval(flags, matrix.groups)) for flags in matrix.correct[rows]]
    return [(interval.low, float(share), interval.high) for share, interval in found]
