"""Paths of a recipe, which are meant from where the recipe lies.

A recipe that was sent with its pictures and checkpoints works from any folder. What the command
line gives (`--set`, `-o`) is meant from where one stands, and so is what is not found beside the
recipe: recipes that were written to be run from one folder still are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from stockpot.checkpoints.resolve import zoo_folder
from stockpot.datasets import datasets
from stockpot.datasets.shards.files import is_shards, named_files
from stockpot.datasets.tasks.sets import TASK_SETS
from stockpot.remote.address import address

DATA_KEYS = ("dataset", "path", "labels", "files", "classes", "classnames", "templates")
MODEL_KEYS = ("load", "weights", "base", "dual_encoder")

Raw = dict[str, Any]


def beside(recipe: Path) -> Callable[[Raw], Raw]:
    """What brings the paths of this recipe file to where they lie."""
    return partial(placed, folder=recipe.parent)


def placed(raw: Raw, folder: Path) -> Raw:
    """A recipe with the paths that are there seen from `folder` brought to where one stands."""
    found = dict(raw)
    if folder.resolve() == Path().resolve():
        return found
    for block, keys, is_name in (
        ("data", DATA_KEYS, _is_data),
        ("models", MODEL_KEYS, lambda text: zoo_folder(text) is not None),
        ("fuse", ("load",), lambda text: False),
    ):
        entries = raw.get(block)
        if isinstance(entries, Mapping):
            found[block] = {
                name: _moved(entry, keys, is_name, folder) for name, entry in entries.items()
            }
    return found


def _moved(entry: Any, keys: tuple[str, ...], is_name: Callable[[str], bool], folder: Path) -> Any:
    if not isinstance(entry, Mapping):
        return entry
    return {
        key: _place(value, folder)
        if key in keys and isinstance(value, str) and not is_name(value)
        else value
        for key, value in entry.items()
    }


def _place(text: str, folder: Path) -> str:
    """The text as a path from here, if something lies there seen from the recipe."""
    # A factory is `file.py:function`, and only the file is a path.
    path, colon, function = text.partition(".py:")
    path += ".py" if colon else ""
    if is_shards(text) and address(text) is None:
        first = folder / Path(named_files(text)[0]).expanduser()
        return str(folder / text) if first.is_file() else text
    there = folder / Path(path).expanduser()
    return f"{there}{':' * bool(colon)}{function}" if text and there.exists() else text


def _is_data(text: str) -> bool:
    return text in datasets or text in TASK_SETS
