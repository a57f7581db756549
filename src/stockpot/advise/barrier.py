"""Halfway between the base and each member, on a few images: does the line lead through a valley?

Members of one family lie in one valley of low loss, and halfway the accuracy is near that of the
ends; between models that were trained apart it is not (arXiv:1912.05671).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from stockpot.advise.facts import Line
from stockpot.datasets.dataset import Dataset
from stockpot.measure.measurement import Context, right_flags
from stockpot.results.contrast import paired
from stockpot.tune.merges import Merges

Source = str | Path


def lines(base: Source, members: dict[str, Source], data: Dataset) -> Iterator[tuple[str, Line]]:
    """One member after the other; besides the base only one of them is in memory."""
    start: NDArray[np.float64] | None = None
    for name, source in members.items():
        merges = Merges({name: source}, base, [data], device=torch.device("cpu"))
        if start is None:
            start = _right(merges, 0.0)
        end, halfway = _right(merges, 1.0), _right(merges, 0.5)
        found = paired((start + end) / 2, halfway)
        yield (
            name,
            Line(
                base=float(start.mean()),
                member=float(end.mean()),
                halfway=float(halfway.mean()),
                barrier=found.value,
                low=found.low,
                high=found.high,
            ),
        )


def _right(merges: Merges, share: float) -> NDArray[np.float64]:
    with merges.merged("task_arithmetic", {"scale": share}) as (model,):
        flags = right_flags(model, merges.data[0], Context(), "on the way")["all"]
    return np.asarray(flags, dtype=np.float64)
