"""Soups of two members: scores along the line through them, and one score against another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from stockpot.results.statistics import wilson
from stockpot.season.matrix import Matrix
from stockpot.season.plots.canvas import COLOURS, PALE, Axes, Canvas, span


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
    bands = {name: _bands(matrix, chosen) for name, matrix in matrices.items()}
    every = [value for band in bands.values() for column in band for value in column]
    canvas = Canvas(680, 360, title)
    axes = Axes(canvas, (float(places.min()), float(places.max())), span(every), aside=136)
    for low, high in ((min(places), 0.0), (1.0, max(places))):
        if high > low:
            corners = [(low, axes.up[0]), (high, axes.up[0]), (high, axes.up[1]), (low, axes.up[1])]
            canvas.area([axes.at(*corner) for corner in corners], PALE, 0.08)
    axes.frame(across, f"{title} (%)", [(float(w), f"{w:g}") for w in places[:: _every(places)]])
    for index, (low, middle, high) in enumerate(bands.values()):
        colour = COLOURS[index % len(COLOURS)]
        upper = [axes.at(x, y) for x, y in zip(places, high, strict=True)]
        lower = [axes.at(x, y) for x, y in zip(places, low, strict=True)]
        canvas.area([*upper, *reversed(lower)], colour)
        path = [axes.at(x, y) for x, y in zip(places, middle, strict=True)]
        canvas.path(path, colour)
        for point, x, y in zip(path, places, middle, strict=True):
            canvas.dot(point, colour, note=f"weight {x:g}: {100 * y:.1f} %")
    canvas.legend((axes.right + 16, axes.top + 12), list(bands))
    return canvas.svg()


def trade_off(
    across: Matrix,
    up: Matrix,
    lines: Mapping[str, Sequence[int]],
    *,
    names: tuple[str, str],
    title: str,
    others: Mapping[str, tuple[float, float]] | None = None,
) -> str:
    """One score against another as the weight runs along each line.

    Args:
        across: the condition drawn from left to right.
        up: the condition drawn upwards, over the same soups.
        lines: the soups of each line, in order.
        names: of the two conditions.
        title: of the picture.
        others: models that are no soups, as pairs of scores.
    """
    x, y = across.accuracy(), up.accuracy()
    used = [row for rows in lines.values() for row in rows]
    extra = list((others or {}).values())
    canvas = Canvas(520, 420, title)
    axes = Axes(
        canvas,
        span([*x[used], *(pair[0] for pair in extra)]),
        span([*y[used], *(pair[1] for pair in extra)]),
    )
    low, high = axes.across
    marks = [(low + (high - low) * step / 4, f"{100 * (low + (high - low) * step / 4):.0f}")
             for step in range(5)]  # fmt: skip
    axes.frame(f"{names[0]} (%)", f"{names[1]} (%)", marks)
    for index, rows in enumerate(lines.values()):
        colour = COLOURS[index % len(COLOURS)]
        path = [axes.at(x[row], y[row]) for row in rows]
        canvas.path(path, colour)
        for point, row in zip(path, rows, strict=True):
            weights = ", ".join(f"{weight:g}" for weight in across.weights[row])
            canvas.dot(point, colour, note=f"{weights}: {100 * x[row]:.1f}, {100 * y[row]:.1f} %")
    for name, pair in (others or {}).items():
        point = axes.at(*pair)
        canvas.dot(point, PALE, radius=5, note=f"{100 * pair[0]:.1f}, {100 * pair[1]:.1f} %")
        canvas.text((point[0] + 7, point[1] + 4), name, colour=PALE)
    canvas.legend((axes.left + 10, axes.bottom - 16 * len(lines)), list(lines))
    return canvas.svg()


def _bands(matrix: Matrix, rows: NDArray[np.intp]) -> tuple[list[float], list[float], list[float]]:
    counts, n = matrix.correct[rows].sum(axis=1), matrix.correct.shape[1]
    intervals = [wilson(int(count), n) for count in counts]
    return (
        [interval.low for interval in intervals],
        [int(count) / n for count in counts],
        [interval.high for interval in intervals],
    )


def _every(places: NDArray[np.float64]) -> int:
    return max(1, len(places) // 8)
