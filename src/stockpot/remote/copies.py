"""Where the copies of run folders lie on this machine, and of which address each is one."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from stockpot.files import cache_folder
from stockpot.remote.address import address

ADDRESS = "address"
"""The key of a copy's notes that says what it is a copy of."""


def copy_folder(url: str) -> Path:
    """The folder in the cache that is the copy of an address."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", url)[-60:].strip("-")
    return cache_folder() / "remote" / f"{name}-{hashlib.sha256(url.encode()).hexdigest()[:12]}"


def notes_of(folder: Path) -> Path:
    """What is noted about a copy, beside it."""
    return folder.with_name(f"{folder.name}.json")


def place_name(place: str | Path) -> str:
    """What a folder or file is called wherever one is: by its address, in a copy too.

    Of what has no address it is the whole path.
    """
    if found := address(place):
        return found
    path = Path(place).resolve()
    root = (cache_folder() / "remote").resolve()
    if not path.is_relative_to(root) or path == root:
        return str(path)
    first, *rest = path.relative_to(root).parts
    url = _noted(notes_of(root / first))
    return "/".join((url, *rest)) if url else str(path)


_KNOWN: dict[Path, str] = {}


def _noted(notes: Path) -> str:
    if notes not in _KNOWN:
        try:
            _KNOWN[notes] = str(json.loads(notes.read_bytes())[ADDRESS])
        except (OSError, ValueError, KeyError, TypeError):
            return ""
    return _KNOWN[notes]
