"""How many labelled images the choice of a soup needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from stockpot.charts import Spot, lines
from stockpot.season.matrix import Matrix

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
    drawn = {
        name: [Spot(k, m, m - s, m + s, f"{k} images: {100 * m:.1f} +- {100 * s:.1f} %")
               for k, m, s in zip(shots, means, spread, strict=True)]
        for name, (means, spread) in curves.items()
    }  # fmt: skip
    marks = [(float(k), str(k)) for k in shots]
    return lines(
        drawn, across="labelled images", up=title, marks=marks, logarithmic=True, width=700
    ).svg()


def curve(
    matrix: Matrix, held_out: int, shots: Sequence[int], draws: int, seed: int = 0
) -> tuple[list[float], list[float]]:
    """Mean and standard deviation over draws, for each number of images."""
    found = [matrix.few_shot(k, held_out=held_out, draws=draws, seed=seed) for k in shots]
    return [float(np.mean(each)) for each in found], [float(np.std(each)) for each in found]
