"""How much memory a method takes that sees matrices whole, for the plan.

It is told in parts: tensors in the precision of the walk as large as the one that is merged. Copies
in fp64 are two, and decompositions want room of their own, most of it for the smaller Gram matrix.
The numbers are what processes took, with square and with long matrices (`tests/fuse/test_cost.py`).
"""

from __future__ import annotations

from collections.abc import Callable

Room = Callable[[str, tuple[int, ...], int], float | None]
"""From a tensor's name and shape and the number of members to the parts that a thread holds at
once; None where the tensor is merged like any other."""


def of_matrices(
    each: float,
    *,
    member: float = 0.0,
    gram: float = 0.0,
    columns: float = 0.0,
    merged: Callable[[str, tuple[int, ...]], bool] | None = None,
) -> Room:
    """So many parts for a matrix, and usual ones for all else.

    Args:
        each: parts of the matrix' own size.
        member: and as many for each member.
        gram: parts of the size of its smaller Gram matrix.
        columns: parts that have the side of its columns twice.
        merged: which tensors are merged as matrices, if not all that are.
    """

    def room(name: str, shape: tuple[int, ...], count: int) -> float | None:
        if len(shape) != 2 or not all(shape) or (merged is not None and not merged(name, shape)):
            return None
        small = gram * min(shape) / max(shape)
        return each + member * count + small + columns * shape[1] / shape[0]

    return room
