"""Datasets that are kept in memory for the next who asks in the same call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset


def kept_dataset(source: str, options: Mapping[str, Any]) -> Dataset:
    """The dataset, loaded now or before; the last few are kept."""
    return _kept(source, json.dumps(options, sort_keys=True))


def forget_datasets() -> None:
    """Let go of those that are kept: whoever begins anew sees the files as they are now.

    A dataset is known by its name or path, behind which other pictures may lie by then.
    """
    _kept.cache_clear()


@lru_cache(maxsize=48)  # more than the tasks of the largest set, which models take in turn
def _kept(source: str, options: str) -> Dataset:
    return load_dataset(source, **json.loads(options))
