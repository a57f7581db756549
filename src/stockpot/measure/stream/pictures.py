"""The pictures of a stream: any rows under any corruption, made once where there is room."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stockpot.corrupt.apply import corrupt, picture_seeds
from stockpot.corrupt.constants import Profile
from stockpot.corrupt.sizes import Sizing
from stockpot.corrupt.weather.frost import Overlays
from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.measure.grids import CorruptedBatches

Corruption = tuple[str, int] | None
"""A name and a severity; none leaves pictures as they are."""

ROOM = 2**30
"""Bytes that are kept at most: fifteen corruptions of the 10,000 test pictures of CIFAR-10."""
_KEPT = CorruptedBatches(ROOM)


@dataclass(frozen=True)
class Pictures:
    """The pictures of one dataset for one model.

    A picture's pixels depend on its row and the seed alone: not on the batch, nor on the stream.
    """

    data: Dataset
    several: int
    """How many corruptions there are."""
    way: Sizing
    device: torch.device
    seed: int
    profile: Profile | Literal["auto"]
    overlays: Overlays

    def take(self, rows: NDArray[np.int64], corruptions: list[Corruption]) -> Tensor:
        """These rows, each under its corruption, as uint8 pictures that the model can be shown."""
        several = list(dict.fromkeys(corruptions))
        if len(several) == 1:
            return self._one(rows, several[0])
        numbers = np.array([several.index(each) for each in corruptions])
        parts = [self._one(rows[numbers == n], each) for n, each in enumerate(several)]
        places = np.concatenate([np.flatnonzero(numbers == n) for n in range(len(several))])
        return torch.cat(parts)[torch.from_numpy(np.argsort(places)).to(self.device)]

    def _one(self, rows: NDArray[np.int64], corruption: Corruption) -> Tensor:
        if corruption is None:
            part = self.data.take(rows.tolist())
            (batch,) = part.batches(len(part), self.way.preprocess.fit)
            return batch.images.to(self.device)
        whole = self._whole(corruption)
        if whole is not None:
            return self.way.seen(whole[torch.from_numpy(rows).to(self.device)])
        return self.way.seen(self._made(self.data.take(rows.tolist()), rows, corruption))

    def _whole(self, corruption: tuple[str, int]) -> Tensor | None:
        """All rows under a corruption, where there is room to keep those of every corruption."""
        images = self.data.images
        if not isinstance(images, TensorImages) or images.pixels.numel() * self.several > ROOM:
            return None
        question = (
            *(self.data.fingerprint, self.way.origin, self.seed, str(self.device)),
            *(self.profile, self.overlays),
        )
        found = _KEPT.find(question, corruption)
        if found is None:
            found = self._made(self.data, np.arange(len(self.data)), corruption)
            _KEPT.keep(corruption, found)
        return found

    def _made(self, part: Dataset, rows: NDArray[np.int64], corruption: tuple[str, int]) -> Tensor:
        name, severity = corruption
        options = {"overlays": self.overlays} if name == "frost" else {}
        seeds = picture_seeds(self.seed, rows)
        made, start = [], 0
        for _, base in self.way.batches(part, 256):
            own = seeds[start : start + len(base)]
            start += len(base)
            images = base.to(self.device)
            made.append(corrupt(images, name, severity, seed=own, profile=self.profile, **options))
        return torch.cat(made)
