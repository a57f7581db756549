"""Every picture that one matrix of soups x images can give, as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stockpot.files import write_atomic
from stockpot.season.matrix import Matrix
from stockpot.season.plots.composition import composition
from stockpot.season.plots.labels_needed import SHOTS, labels_needed
from stockpot.season.plots.lines import along_line
from stockpot.season.plots.triangle import triangle


def draw_matrix(
    matrix: Matrix, names: Sequence[str], folder: Path, *, data: str, score: str = "accuracy"
) -> list[Path]:
    """Write the pictures and return their paths.

    The line through each pair of members and the triangle of each three are drawn where the matrix
    holds soups on them; what the best soups are made of, always; the labels needed, where there
    are at least 40 images.

    Args:
        matrix: soups x images.
        names: of the members.
        folder: where the files go.
        data: what the images are called.
        score: what a soup has on them, such as accuracy under some threats.
    """
    pictures: dict[str, str] = {}
    for first, second in _pairs(len(names)):
        rows = on_span(matrix, (first, second))
        if len(rows) > 2:
            pictures[f"line-{names[first]}-{names[second]}"] = along_line(
                {data: matrix}, rows, second, title=score, across=f"weight of {names[second]}"
            )
    for three in _threes(len(names)):
        rows = [row for row in on_span(matrix, three) if (matrix.weights[row] >= -1e-9).all()]
        if len(rows) > 3:
            kept = [names[member] for member in three]
            pictures["triangle-" + "-".join(kept)] = triangle(
                {data: matrix}, rows, three, kept, title=f"{score} of convex soups"
            )
    pictures["composition"] = composition({data: matrix}, names, title="the five best soups")
    images = matrix.originals
    if images >= 40:
        shots = [k for k in SHOTS if k <= images // 2]
        pictures["labels-needed"] = labels_needed(
            {data: matrix}, held_out=images // 2, shots=shots, title=f"held-out {score}"
        )
    paths = []
    for name, text in pictures.items():
        paths.append(folder / f"{name}.svg")
        write_atomic(paths[-1], text)
    return paths


def on_span(matrix: Matrix, members: Sequence[int]) -> list[int]:
    """The soups in which no other member takes part."""
    others = [column for column in range(matrix.weights.shape[1]) if column not in members]
    alone = np.abs(matrix.weights[:, others]).sum(axis=1) < 1e-9
    return [int(row) for row in np.flatnonzero(alone)]


def _pairs(n: int) -> list[tuple[int, int]]:
    return [(a, b) for a in range(n) for b in range(a + 1, n)]


def _threes(n: int) -> list[tuple[int, int, int]]:
    return [(a, b, c) for a, b in _pairs(n) for c in range(b + 1, n)]
