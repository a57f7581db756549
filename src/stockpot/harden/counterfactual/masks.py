"""Which cells of a picture are replaced: random ones, the object, or its context.

Cells are the patches of a transformer, or the positions of a convolutional map. The object is
where the relevance, divided by the picture's largest, lies strictly above a threshold; the context
is the rest. A picture without any relevance has no object and is all context.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Generator, Tensor

from stockpot.explain.relevance import normalised

Mask = Literal["none", "random", "context", "object"]


def object_cells(relevance: Tensor, threshold: float) -> Tensor:
    """The cells that carry the decision, as booleans [images, rows, columns]."""
    return normalised(relevance) > threshold


def random_cells(
    shape: tuple[int, int, int], rate: float, generator: Generator, *, fixed: bool
) -> Tensor:
    """Cells drawn at random; `fixed` masks the same number in every picture.

    Otherwise each cell is masked with probability `rate` on its own.
    """
    n, rows, columns = shape
    drawn = torch.rand((n, rows * columns), generator=generator)
    if not fixed:
        return (drawn < rate).view(shape)
    kept = int(rows * columns * (1 - rate))
    masked = drawn.argsort(dim=1).argsort(dim=1) >= kept
    return masked.view(shape)
