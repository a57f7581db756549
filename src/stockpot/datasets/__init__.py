"""Where images and labels come from; one file per source or family."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stockpot.registry import Kind, Tags

if TYPE_CHECKING:
    from stockpot.datasets.dataset import Dataset

datasets = Kind[Callable[..., "Dataset"]](
    "datasets", noun="dataset", package="stockpot.datasets"
).tagged(Tags)
