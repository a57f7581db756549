"""A dataset kept decoded on disk: one safetensors file, mapped into memory when it is read.

For each split it holds `<split>.images` (uint8 N x C x H x W, one channel for greyscale) and
`<split>.labels`, and in its header the fingerprints and where the data came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from stockpot.datasets.fetch.cache import written_whole
from stockpot.errors import BadDataError


class Part(NamedTuple):
    """The pictures and labels of one split."""

    images: Tensor
    labels: Tensor

    def in_colour(self) -> Tensor:
        """The pictures with three channels; greyscale ones are repeated without a copy."""
        return self.images.expand(-1, 3, -1, -1)


def write_decoded(path: Path, parts: Mapping[str, Part], facts: Mapping[str, str]) -> None:
    """Write all splits into one file, which appears only when it is complete."""
    tensors = {}
    for split, part in parts.items():
        tensors[f"{split}.images"] = part.images.contiguous()
        tensors[f"{split}.labels"] = part.labels.to(torch.int64).contiguous()
    with written_whole(path) as file:
        try:
            save_file(tensors, file, metadata=dict(facts))
        except SafetensorError as problem:  # its way to say that the disk is full
            raise OSError(str(problem)) from problem


def read_part(path: Path, split: str) -> Part:
    """One split; its pictures are read from disk as they are touched."""
    with _opened(path) as file:
        return Part(file.get_tensor(f"{split}.images"), file.get_tensor(f"{split}.labels"))


def read_facts(path: Path) -> dict[str, str]:
    """The header of the file."""
    with _opened(path) as file:
        return dict(file.metadata() or {})


def _opened(path: Path) -> safe_open:
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as problem:
        raise BadDataError(
            f"{path} cannot be read ({problem}).", hint="Delete it and fetch the dataset again."
        ) from None
