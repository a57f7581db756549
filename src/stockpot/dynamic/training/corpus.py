"""The pictures an autoencoder learns from: several datasets at two sizes, on one device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadDataError


@dataclass(frozen=True)
class Source:
    """One dataset's pictures at one size, and its share among those of that size."""

    name: str
    pixels: Tensor
    share: float


class Corpus:
    """Random batches of pictures of one size, with seeded draws, half of them mirrored."""

    def __init__(
        self, sources: Sequence[Source], device: torch.device, *, mirrored: bool = True
    ) -> None:
        """Take pictures; letters and digits should not be `mirrored`."""
        self.mirrored = mirrored
        self._by_side: dict[int, list[Source]] = {}
        for source in sources:
            pixels = source.pixels.to(device)
            side = int(pixels.shape[-1])
            self._by_side.setdefault(side, []).append(Source(source.name, pixels, source.share))

    @property
    def sides(self) -> list[int]:
        """The sizes there are, small first."""
        return sorted(self._by_side)

    def sample(self, side: int, count: int, generator: Generator) -> Tensor:
        """Pictures in [0, 1] of one size, from every dataset by its share."""
        sources = self._by_side[side]
        shares = torch.tensor([source.share for source in sources])
        drawn = torch.multinomial(shares, count, replacement=True, generator=generator)
        parts = []
        for index, source in enumerate(sources):
            wanted = int((drawn == index).sum())
            rows = torch.randint(len(source.pixels), (wanted,), generator=generator)
            parts.append(source.pixels[rows.to(source.pixels.device)])
        pixels = torch.cat(parts).float() / 255
        if not self.mirrored:
            return pixels
        mirrored = torch.rand(len(pixels), generator=generator).to(pixels.device) < 0.5
        return torch.where(mirrored[:, None, None, None], pixels.flip(3), pixels)


def gather(data: Dataset, side: int) -> Tensor:
    """All pictures of a dataset as uint8 at one size: small ones are padded, others resized."""
    parts = []
    for batch in data.batches(1024):
        pixels = batch.images
        height, width = pixels.shape[-2:]
        if height != width:
            raise BadDataError(f"{data.name}: expected square pictures, got {height} x {width}.")
        if side - 4 <= height < side:
            # 28 px drawings keep their pixels; the border repeats their own.
            before = (side - height) // 2
            after = side - height - before
            pixels = F.pad(pixels.float(), (before, after, before, after), mode="replicate").byte()
        elif height != side:
            floats = F.interpolate(
                pixels.float(), size=(side, side), mode="bilinear", antialias=True
            )
            pixels = floats.round().clamp(0, 255).byte()
        parts.append(pixels)
    return torch.cat(parts)
