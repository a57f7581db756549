"""What every opened checkpoint offers: names, shapes and dtypes at once, values when asked.

Nothing of a tensor is read to answer `tensors()`, so that several checkpoints can be compared, and
a mistake reported, before any work is done.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class TensorInfo(NamedTuple):
    """Shape and dtype of a tensor that has not been read."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes it takes in a file."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        size = "x".join(map(str, self.shape)) or "scalar"
        return f"{size} {str(self.dtype).removeprefix('torch.')}"


class Source(Protocol):
    """An opened checkpoint; safe to read from several threads."""

    @property
    def label(self) -> str:
        """How messages call it."""
        ...

    @property
    def folder(self) -> Path | None:
        """Where its `config.json` and processor files lie, if anywhere."""
        ...

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that hold its weights; empty for weights in memory."""
        ...

    @property
    def tied(self) -> Mapping[str, str]:
        """Names that share their storage with an earlier name: alias -> name."""
        ...

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor, in the order in which it lies in the files."""
        ...

    def read(self, name: str) -> Tensor:
        """The values; they may share memory with the file and must not be written to."""
        ...

    def stretch(self, name: str, start: int, stop: int) -> Tensor:
        """The elements from `start` to `stop` - 1, flat; for a walk that keeps none of them."""
        ...

    def prefetch(self, name: str, start: int, stop: int) -> None:
        """Wait until that stretch lies in memory; called by threads that read ahead."""
        ...
