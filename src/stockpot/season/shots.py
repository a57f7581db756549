"""Images that are met again and again: decoded once, kept on the device in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, pairwise

import torch
from torch import Tensor

from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadParameterError
from stockpot.models.classifier import Classifier
from stockpot.score.scorer import Scorer, scorer_for


@dataclass(frozen=True)
class Shots:
    """Pixel batches on one device, and what is right for each image."""

    batches: tuple[Tensor, ...]
    scorer: Scorer

    def __len__(self) -> int:
        return len(self.scorer.labels)

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """Which rows each batch holds."""
        ends = torch.tensor([0, *(len(batch) for batch in self.batches)]).cumsum(0).tolist()
        return tuple(slice(a, b) for a, b in pairwise(ends))

    def losses(self, outputs: Tensor, rows: Tensor) -> Tensor:
        """The loss of a model's outputs on each of these rows."""
        return self.scorer.losses(self.scorer.logits(outputs), rows)

    def take(self, rows: Sequence[int] | Tensor, batch_size: int) -> Shots:
        """Some of the images, in this order."""
        index = torch.as_tensor(rows, dtype=torch.long, device=self.scorer.labels.device)
        pixels = torch.cat(self.batches)[index] if self.batches else self.scorer.labels[index]
        parts = torch.split(pixels, batch_size) if len(index) else ()
        return Shots(parts, self.scorer.take(index))

    def epochs(self, seed: int, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of pixels and their rows without end; epoch e has the order of `seed` + e."""
        pixels = torch.cat(self.batches)
        for epoch in count():
            generator = torch.Generator().manual_seed(seed + epoch)
            order = torch.randperm(len(self), generator=generator).to(pixels.device)
            for rows in torch.split(order, batch_size):
                yield pixels[rows], rows


def read_shots(data: Dataset, model: Classifier, *, device: torch.device, batch_size: int) -> Shots:
    """Decode a dataset once, at the size the model wants."""
    scorer = scorer_for(model.classes, data)
    fit = model.preprocess.fit
    batches = tuple(batch.images.to(device) for batch in data.batches(batch_size, fit))
    return Shots(batches, scorer.to(device))


def draw(n: int, shots: int, seed: int) -> tuple[Tensor, Tensor]:
    """Rows to select on, drawn with a seed, and the rest, which the selection never sees."""
    if not 0 <= shots < n:
        raise BadParameterError(
            f"shots: expected 0 to {n - 1} of the {n} images, so that some are held out, "
            f"got {shots}."
        )
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return order[:shots].sort().values, order[shots:].sort().values
