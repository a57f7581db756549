"""What the first batch needs is made and used once while its pictures are still being decoded.

On a GPU most of that is done once in a process: a network is recorded, and every kernel is loaded
at its first use. All of it is done on noise first, so that the first pictures find it there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import torch
from torch import Tensor

from stockpot.datasets.dataset import Dataset, is_fitted
from stockpot.models.forward.passes import Passes
from stockpot.score.predictions import Watch
from stockpot.types import ImageSize

Scored = Callable[[Tensor, slice], object]
"""What a measure does with the outputs for some rows, on the device."""


def waits_for_pictures(data: Dataset, device: torch.device) -> bool:
    """Whether there is time for it: a GPU has nothing to do while pictures are decoded."""
    return device.type == "cuda" and is_fitted(data.images)


def rehearse(run: Passes, size: ImageSize, count: int, scored: Scored | None) -> None:
    """Make passes, and do with answers to noise what will be done with others.

    Args:
        run: the passes, which judge by the first pictures whether they may be used.
        size: of the pictures that will come.
        count: how many will come first.
        scored: what is done with the outputs; it must leave nothing behind.
    """
    answers = run.prepare((3, *size), count)
    if answers is not None:
        with suppress(Exception):  # of whatever kind: it is done again, and then it is heard
            Watch().add(answers)
            if scored is not None:
                scored(answers, slice(0, len(answers)))
