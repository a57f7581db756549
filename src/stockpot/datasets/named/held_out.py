"""Which training images are held out: `val` has them and `fit` lacks them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

HeldOut = Callable[[Tensor], Tensor]
"""From the labels of the training images to a mask of those held out."""


def last(count: int) -> HeldOut:
    """The last `count` images, for sets whose order is random."""

    def chosen(labels: Tensor) -> Tensor:
        return torch.arange(len(labels)) >= len(labels) - count

    return chosen


LAST_THOUSAND = last(1000)


def last_of_each_class(count: int) -> HeldOut:
    """The last `count` images of every class, for sets sorted by class."""

    def chosen(labels: Tensor) -> Tensor:
        mask = torch.zeros(len(labels), dtype=torch.bool)
        for label in range(int(labels.max()) + 1):
            mask[(labels == label).nonzero()[-count:, 0]] = True
        return mask

    return chosen
