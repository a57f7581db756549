"""Soups of three members: a triangle with a member in each corner, coloured by score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stockpot import charts
from stockpot.charts import Share
from stockpot.season.matrix import Matrix


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
    panels = {
        condition: [
            Share(tuple(matrix.weights[row][list(members)].tolist()), float(score))
            for row, score in zip(rows, matrix.accuracy()[list(rows)], strict=True)
        ]
        for condition, matrix in matrices.items()
    }
    return charts.triangle(panels, names, title).svg()
