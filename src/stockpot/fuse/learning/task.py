"""A task: images, and what belongs to it alone in the model, such as its head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from stockpot.datasets.dataset import Batch, Dataset, Fit
from stockpot.errors import BadDataError

_AHEAD = 64
"""Batches that are picked out of a dataset at once."""


@dataclass(frozen=True)
class Task:
    """One member's data, and the tensors that are its own: they are not fused."""

    name: str
    data: Dataset
    classes: tuple[str, ...]
    own: Mapping[str, Tensor] = field(default_factory=dict)
    """Name in the working model -> values."""

    def draws(self, size: int, seed: int, fit: Fit, skip: int = 0) -> Iterator[Tensor]:
        """Batches of unlabelled images without end: every epoch in a new, seeded order.

        A dataset smaller than a batch gives the batches that it can. The first `skip` batches are
        left out, and their images not decoded.
        """
        if not len(self.data):
            raise BadDataError(f"{self.data}: expected images to learn from, got none.")
        generator = torch.Generator().manual_seed(seed)
        size = min(size, len(self.data))
        whole = len(self.data) // size * size
        left_out = skip * size
        while True:
            order = torch.randperm(len(self.data), generator=generator)[:whole]
            order, left_out = order[left_out:], max(0, left_out - whole)
            for rows in torch.split(order, size * _AHEAD):
                for batch in self.data.take(rows).batches(size, fit):
                    yield batch.images

    def sample(self, examples: int, size: int, seed: int, fit: Fit) -> Iterator[Batch]:
        """A seeded sample of the images in random order, once, in batches."""
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randperm(len(self.data), generator=generator)[:examples]
        yield from self.data.take(rows).batches(size, fit)
