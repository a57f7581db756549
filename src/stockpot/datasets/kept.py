"""Datasets that are kept in memory for the next who asks, while their files stay as they are."""

from __future__ import annotations

import json
import os
from collections.abc import Hashable, Mapping
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.datasets.shards.files import is_shards, shard_names
from stockpot.errors import UserError
from stockpot.remote.address import address

_LOOKED_AT = 10_000
"""Entries of a folder, at most."""


def kept_dataset(source: str, options: Mapping[str, Any], state: Hashable = None) -> Dataset:
    """The dataset, loaded now or before; the last few are kept.

    Args:
        source: as for `load_dataset`.
        options: of it.
        state: of its files (`state_of`); how they are now when left out.
    """
    return _kept(source, json.dumps(options, sort_keys=True), state or state_of(source, options))


def state_of(source: str, options: Mapping[str, Any]) -> Hashable:
    """What tells that files were written since, at the cost of a look at them.

    In a folder these are its own files and the times of its folders, which change with every
    picture that comes, goes or is replaced; one whose bytes are overwritten does not show.
    """
    texts = [source, *(value for value in options.values() if isinstance(value, str))]
    return tuple(_state(os.path.expanduser(name)) for text in texts for name in _named(text))


def _named(text: str) -> list[str]:
    """The files that a text names: a pattern of tars names many, and is itself none."""
    if not is_shards(text) or address(text):
        return [text]
    try:
        return shard_names(text)[:_LOOKED_AT]
    except UserError:  # of what is wrong with it, whoever loads it will tell
        return [text]


def _state(path: str) -> Hashable:
    try:
        own = _stamp(os.stat(path))
        if not Path(path).is_dir():
            return own
        with os.scandir(path) as entries:
            inside = [(each.name, _stamp(each.stat())) for each in islice(entries, _LOOKED_AT)]
        return (own, *sorted(inside))
    except (OSError, ValueError):  # a name, or what whoever loads it will tell of
        return None


def _stamp(facts: os.stat_result) -> tuple[int, int, int]:
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


@lru_cache(maxsize=48)  # more than the tasks of the largest set, which models take in turn
def _kept(source: str, options: str, state: Hashable) -> Dataset:
    return load_dataset(source, **json.loads(options))
