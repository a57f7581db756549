"""`stockpot.load_dataset`: a registered name, or a path whose kind says how it is read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from stockpot.datasets import datasets
from stockpot.datasets.by_content.split_names import WHOLE
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.from_pictures import Given, dataset_of
from stockpot.datasets.holdouts.given import KEYS as HOLDOUTS
from stockpot.datasets.holdouts.given import chosen
from stockpot.datasets.picture_folder import folder_kind
from stockpot.datasets.shards.files import is_shards
from stockpot.datasets.words.given import KEYS, with_words
from stockpot.errors import BadDataError, UnknownNameError, shortened
from stockpot.foreign import reading
from stockpot.registry import Entry


def load_dataset(
    name: str | Path | Given, *, split: str | None = None, limit: int | None = None, **options: Any
) -> Dataset:
    """Load one split of a dataset.

    Args:
        name: a registered name (`stockpot list datasets`), a folder of class folders, a folder
            written by Hugging Face `datasets`, a .npz, .safetensors, idx or .parquet file, or tars
            of samples (`shards/{000..009}.tar`). Or PIL images: a mapping from class names to lists
            of them, or pairs of an image and its class.
        split: which part to take; when not given, `test`, or all of data that has no splits (asked
            for train, val or test, such data is parted by content).
        limit: take a random, seeded subset of at most so many images.
        **options: further parameters of that dataset (`stockpot show NAME`); of every one
            `classnames` and `templates` (lists, or files with one entry a line or a JSON list)
            and `words` (the name of a convention) for dual encoders; `families`, `concepts`,
            `exclude_families` and `exclude_concepts` (lists) and a `protocol` with what it holds
            out (docs/surface.md).
    """
    if not isinstance(name, str | Path):
        if split not in (None, WHOLE):
            raise BadDataError(f"pictures that are given have no splits, got split={split!r}.")
        return dataset_of(name, **options).limited(limit)
    name = str(name)
    registered = not _is_place(name) and name in datasets
    if registered and "path" not in options:
        return _load(name, split, limit, options)
    # Whatever a file does to its reader, it is told as one line about that file.
    with reading(shortened(str(options.get("path", name)), 160)):
        if registered:
            return _load(name, split, limit, options)
        if is_shards(name):
            return _load("webdataset", split, limit, {"path": name, **options})
        path = Path(name).expanduser()
        if path.exists():
            return _load(reader(path), split, limit, {"path": str(path), **options})
    if "/" in name or path.suffix:
        raise BadDataError(
            f"expected a dataset at {shortened(repr(name), 160)}, and there is no such file or "
            "folder.",
            hint="A dataset of the Hugging Face hub is loaded as hub with path=OWNER/NAME.",
        )
    return _load(name, split, limit, options)


def _is_place(name: str) -> bool:
    """Whether this is a path for sure: then nobody looks through all that is registered."""
    return "/" in name and os.path.exists(Path(name).expanduser())


def _load(name: str, split: str | None, limit: int | None, options: dict[str, Any]) -> Dataset:
    try:
        entry = datasets.get(name)
    except UnknownNameError as problem:
        problem.hint = "A path to a folder or file of images works too."
        raise
    given = {key: options.pop(key) for key in KEYS if options.get(key) is not None}
    asked = {key: options.pop(key, None) for key in own_holdouts(entry)}
    held = {key: value for key, value in asked.items() if value is not None}

    def read(part: str | None) -> Dataset:
        found: Dataset = entry(**{**split_option(entry, part), **options})
        return found

    dataset = chosen(read, split, held) if held else read(split)
    if not len(dataset):
        raise BadDataError(f"{shortened(str(options.get('path', name)), 160)}: no image is there.")
    if given:
        dataset = with_words(dataset, given)
    return dataset.limited(limit)


def own_holdouts(entry: Entry[Any]) -> list[str]:
    """The options of every dataset that choose pictures, but those that a reader has itself."""
    own = {parameter.name for parameter in entry.parameters}
    return [key for key in HOLDOUTS if key not in own]


def split_option(entry: Entry[Any], split: str | None) -> dict[str, Any]:
    """What a reader is told of the split: nothing where it knows none.

    No split means `test`, but for readers of data that may have no splits: they see for themselves.
    """
    own = {parameter.name: parameter.default for parameter in entry.parameters}
    if "split" not in own:
        return {}
    return {"split": split or (None if own["split"] is None else "test")}


def reader(path: Path) -> str:
    """The dataset kind that reads what lies at a path."""
    if path.is_dir():
        return folder_kind(path)
    if path.suffix in (".parquet", ".arrow"):
        return "hub"
    if path.suffix in (".npz", ".safetensors") or "idx" in path.name:
        return "arrays"
    raise BadDataError(
        f"expected a folder or a .npz, .safetensors, idx, .parquet or .arrow file, got {path}."
    )
