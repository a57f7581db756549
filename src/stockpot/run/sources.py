"""Whether what a recipe reads from outside is there: models, datasets and saved learning.

Nothing is loaded: what stands on this disk is looked for, what the hub has cannot be known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stockpot.checkpoints.resolve import resolve
from stockpot.errors import BadDataError, UserError


def check_model(source: str, options: Mapping[str, Any]) -> None:
    """Raise if a model's source names a place or a zoo model that is not there."""
    weights = options.get("weights")
    if weights is not None and not Path(str(weights)).expanduser().is_file():
        raise UserError(f"weights: expected a file, and there is none at {weights}.")
    found = resolve(source, revision=options.get("revision"))
    module = source.rpartition(":")[0]
    if found.kind == "factory" and module.endswith(".py") and not Path(module).is_file():
        raise UserError(f"no file at {module}, which {source} names.")


def check_data(source: str, options: Mapping[str, Any]) -> None:
    """Raise if a dataset is unknown, its options are wrong, or its files or split not there."""
    from stockpot.datasets import datasets
    from stockpot.datasets.load import reader
    from stockpot.datasets.shards.files import is_shards
    from stockpot.datasets.tasks.sets import expanded

    path = Path(source).expanduser()
    options = dict(options)
    if source not in datasets and is_shards(source):
        _check_one("webdataset", {"path": source, **options})
        return
    if source not in datasets and path.exists():
        name, options = reader(path), {"path": str(path), **options}
        _check_one(name, options)
        return
    for task in expanded(source):
        _check_one(task, options)


def _check_one(name: str, options: dict[str, Any]) -> None:
    from stockpot.datasets import datasets
    from stockpot.datasets.holdouts.given import check_options
    from stockpot.datasets.load import own_holdouts, split_option
    from stockpot.datasets.words.given import KEYS, lines_of

    entry = datasets.get(name)
    rest = {key: value for key, value in options.items() if key != "split"}
    asked = {key: rest.pop(key, None) for key in own_holdouts(entry)}
    held = {key: value for key, value in asked.items() if value is not None}
    check_options(options.get("split"), held)
    side = None if "protocol" in held else options.get("split")
    options = {**split_option(entry, side), **rest}
    for key in ("classnames", "templates"):
        if key in options:
            lines_of(options[key], key)
    options = {key: value for key, value in options.items() if key not in KEYS}
    entry.validate(options)
    place, split = options.get("path"), options.get("split")
    if not isinstance(place, str):
        return
    if name == "webdataset":
        _check_shards(place)
        return
    path = Path(place).expanduser()
    if not path.exists() and (name in ("arrays", "imagefolder") or _looks_local(place)):
        raise BadDataError(f"path: no file or folder at {place}.")
    try:
        _check_split(name, path, split)
    except UserError as problem:
        raise BadDataError(f"split: {problem.message}", hint=problem.hint) from problem


def _check_shards(place: str) -> None:
    from stockpot.datasets.shards.files import shard_names
    from stockpot.remote.address import address

    for tar in shard_names(place):
        if address(tar) is None and not Path(tar).is_file():
            raise BadDataError(f"path: no file at {tar}.")


def _check_split(name: str, path: Path, split: str | None) -> None:
    if name == "imagefolder":
        from stockpot.datasets.picture_folder import split_folder

        split_folder(path, split)
    elif name == "hub":
        from stockpot.datasets.hub import parquet_files

        parquet_files(path, split)


def _looks_local(place: str) -> bool:
    """Whether a text can only be a path; `owner/name` may be of the hub."""
    return place.startswith(("/", ".", "~")) or place.count("/") != 1 or bool(Path(place).suffix)


def check_saved(path: str) -> None:
    """Raise if what a fusion is to load was never saved."""
    from stockpot.fuse.learning.learner import learned_files

    for file in learned_files(path):
        if not file.is_file():
            raise UserError(f"expected {file}, which `save` writes; there is none.")
