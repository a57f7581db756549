"""How many labelled images the choice of a soup needs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from stockpot.season.matrix import Matrix
from stockpot.season.plots.canvas import COLOURS, Axes, Canvas, span

SHOTS = (10, 30, 100, 300, 500)


def labels_needed(
    matrices: Mapping[str, Matrix],
    *,
    held_out: int,
    title: str,
    shots: Sequence[int] = SHOTS,
    draws: int = 50,
    seed: int = 0,
) -> str:
    """Held-out accuracy of the soup chosen on k images, its mean and standard deviation.

    Args:
        matrices: a matrix for each dataset, over the same soups.
        held_out: images that each draw scores on.
        title: of the picture.
        shots: numbers of images to choose on.
        draws: random splits for each of them.
        seed: of the draws.
    """
    curves = {
        name: curve(matrix, held_out, shots, draws, seed) for name, matrix in matrices.items()
    }
    edges = [m + side * s for means, spread in curves.values()
             for m, s in zip(means, spread, strict=True) for side in (-1, 1)]  # fmt: skip
    canvas = Canvas(700, 360, title)
    places = [math.log10(k) for k in shots]
    axes = Axes(canvas, (places[0], places[-1]), span(edges), aside=160)
    axes.frame("labelled images", f"{title} (%)",
               list(zip(places, map(str, shots), strict=True)))  # fmt: skip
    for index, (means, spread) in enumerate(curves.values()):
        colour = COLOURS[index % len(COLOURS)]
        upper = [axes.at(x, m + s) for x, m, s in zip(places, means, spread, strict=True)]
        lower = [axes.at(x, m - s) for x, m, s in zip(places, means, spread, strict=True)]
        canvas.area([*upper, *reversed(lower)], colour)
        path = [axes.at(x, m) for x, m in zip(places, means, strict=True)]
        canvas.path(path, colour)
        for point, k, m, s in zip(path, shots, means, spread, strict=True):
            canvas.dot(point, colour, note=f"{k} images: {100 * m:.1f} +- {100 * s:.1f} %")
    canvas.legend((axes.right + 16, axes.top + 12), list(curves))
    return canvas.svg()


def curve(
    matrix: Matrix, held_out: int, shots: Sequence[int], draws: int, seed: int = 0
) -> tuple[list[float], list[float]]:
    """Mean and standard deviation over draws, for each number of images."""
    found = [matrix.few_shot(k, held_out=held_out, draws=draws, seed=seed) for k in shots]
    return [float(np.mean(each)) for each in found], [float(np.std(each)) for each in found]
