"""A base and a hundred members of it, from seeds: what a method that takes many is compared on.

Changes of the matrix have rank one, every tenth member changed nothing, the vector changes sparsely
and so that some weights are changed by one member alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

COUNT = 100


def base() -> dict[str, Tensor]:
    return {"layers.0.weight": _draw((6, 5), 1), "layers.0.bias": _draw((40,), 2)}


def member(number: int) -> dict[str, Tensor]:
    """One of the hundred."""
    start = base()
    if number % 10 == 9:
        return start
    left, right = _draw((6, 1), 10 + number), _draw((1, 5), 1000 + number)
    start["layers.0.weight"] += 0.1 * left @ right
    places = [number % 37] if number < 60 else [number % 37, 39 - number // 40]
    start["layers.0.bias"][places] += 0.01 * (1 + number % 7)
    return start


def _draw(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
