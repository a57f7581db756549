"""Images that are met again and again, in batches on the device, and what is right for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.feed import Batches, Feed
from stockpot.models.classifier import Classifier
from stockpot.models.forward.arithmetic import products
from stockpot.models.forward.options import Forward
from stockpot.models.forward.passes import Passes
from stockpot.score.class_space import ClassSpace
from stockpot.score.scorer import Scorer, scorer_for


@dataclass(frozen=True)
class Shots:
    """Pixel batches on one device, and what is right for each image.

    Sets up to `stockpot.datasets.feed.RESIDENT` bytes stay on the device, larger ones are streamed.
    """

    feed: Feed
    scorer: Scorer
    batch_size: int
    groups: NDArray[np.intp] | None = field(default=None, repr=False)
    """Where pictures were made from others: a number of the original for each."""
    forward: Forward = field(default_factory=Forward)
    """How models are asked about them."""

    def __len__(self) -> int:
        return len(self.scorer.labels)

    @property
    def batches(self) -> Batches:
        """All pixels, as often as one likes."""
        return Batches(self.feed, self.batch_size)

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """Which rows each batch holds."""
        size, n = self.batch_size, len(self)
        return tuple(slice(start, min(start + size, n)) for start in range(0, n, size))

    def blocks(self) -> Iterator[list[tuple[Tensor, slice]]]:
        """Batches with their rows, as many together as may be held: for who meets them often.

        A block is emptied when the next one is asked for.
        """
        rows = iter(self.slices)
        for block in self.feed.blocks(self.batch_size):
            pairs = [(batch, next(rows)) for batch in block]
            yield pairs
            pairs.clear()

    def asked(self, model: Classifier) -> Callable[[Tensor], Tensor]:
        """From batches to float32 logits, in the precision of the run.

        For one set of weights: in bfloat16 a copy of the model answers.
        """
        precision = self.forward.precision
        if precision == "bf16":
            return Passes(model, self.forward, self.batch_size)

        def run(batch: Tensor) -> Tensor:
            with products(tf32=precision == "tf32"):
                logits: Tensor = model(batch).float()
            return logits

        return run

    def losses(self, outputs: Tensor, rows: Tensor) -> Tensor:
        """The loss of a model's outputs on each of these rows."""
        return self.scorer.losses(self.scorer.logits(outputs), rows)

    def take(self, rows: Sequence[int] | Tensor, batch_size: int) -> Shots:
        """Some of the images, in this order."""
        index = torch.as_tensor(rows, dtype=torch.long)
        kept = None if self.groups is None else self.groups[index.cpu().numpy()]
        return Shots(self.feed.take(index), self.scorer.take(index), batch_size, kept, self.forward)

    def epochs(self, seed: int, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of pixels and their rows without end; epoch e has the order of `seed` + e."""
        device = self.scorer.labels.device
        for epoch in count():
            generator = torch.Generator().manual_seed(seed + epoch)
            order = torch.randperm(len(self), generator=generator)
            parts = torch.split(order.to(device), batch_size)
            yield from zip(self.feed.batches(batch_size, order), parts, strict=True)


def read_shots(
    data: Dataset,
    model: Classifier,
    *,
    device: torch.device,
    batch_size: int,
    space: ClassSpace = "all",
    forward: Forward | None = None,
) -> Shots:
    """The images of a dataset at the size the model wants, and what is right for the model."""
    scorer = scorer_for(model.classes, data, space)
    feed = Feed(data.images, model.preprocess.fit, device)
    groups = None
    if data.groups is not None:
        groups = np.unique(np.asarray(data.groups), return_inverse=True)[1]
    return Shots(feed, scorer.to(device), batch_size, groups, forward or Forward())
