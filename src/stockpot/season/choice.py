"""What a seasoning method receives besides pool and images, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from stockpot.errors import BadParameterError
from stockpot.pool.pool import Pool
from stockpot.season.evaluate import Done
from stockpot.season.matrix import Matrix
from stockpot.season.robust import Attacked
from stockpot.season.shots import Shots

Progress = Callable[[str, int, int], None]
"""Called with what is under way, how much of it is done, and of how much."""


def no_progress(what: str, done: int, total: int) -> None:
    """Nobody asked."""


@dataclass(frozen=True)
class Context:
    """The seed, the batch size, labelled source images where the user gave some, who is told."""

    seed: int = 0
    batch_size: int = 256
    source: Shots | None = None
    progress: Progress = no_progress

    def told(self, what: str) -> Done:
        """To be called with how much of something is done, and of how much."""
        return partial(self.progress, what)


@dataclass(frozen=True)
class Choice:
    """The chosen weights: one per member, or members x tensors."""

    weights: Tensor
    matrix: Matrix | None = None
    under: Attacked | None = None
    """The attacks that the choice was made under; the soup is scored under the same."""
    images: int = 0
    """Forward passes that the choice took, counted in images."""
    notes: Mapping[str, Any] = field(default_factory=dict)

    def per_member(self, pool: Pool) -> tuple[float, ...]:
        """One weight per member; per-tensor ones are averaged by size."""
        weights = pool.check(self.weights)
        if weights.ndim == 2:
            sizes = torch.tensor(pool.layout.sizes, dtype=torch.float64)
            weights = weights @ sizes / sizes.sum()
        return tuple(float(weight) for weight in weights)


def need_shots(method: str, shots: Shots) -> None:
    """Refuse to choose by accuracy on nothing."""
    if not len(shots):
        raise BadParameterError(f"{method}: needs images to choose on, got shots=0.")
