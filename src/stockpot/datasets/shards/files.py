"""The tars that a text names: a file, a folder, a pattern with `{000..009}`, or an address."""

from __future__ import annotations

import hashlib
import os
import re
from itertools import product
from pathlib import Path

from stockpot.errors import BadDataError
from stockpot.files import cache_folder
from stockpot.remote.address import address, local_path
from stockpot.remote.storage import fetch_file, file_version

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_MOST = 1_000_000


def is_shards(text: str) -> bool:
    """Whether a text names tars by its end."""
    return text.endswith((".tar", ".tar}"))


def named_files(text: str) -> list[str]:
    """All names that a pattern stands for, in order: `{000..009}` counts, `{a,b}` lists."""
    parts = _BRACES.split(text)
    choices = [_choices(part, text) if n % 2 else [part] for n, part in enumerate(parts)]
    count = 1
    for each in choices:
        count *= len(each)
    if count > _MOST:
        raise BadDataError(f"{text}: expected at most {_MOST:,} files, it names {count:,}.")
    return ["".join(each) for each in product(*choices)]


def _choices(inside: str, text: str) -> list[str]:
    if found := _RANGE.fullmatch(inside):
        first, last = int(found[1]), int(found[2])
        if not 0 <= last - first < _MOST:
            raise BadDataError(f"{text}: expected a range that counts up, got {{{inside}}}.")
        return [f"{number:0{len(found[1])}d}" for number in range(first, last + 1)]
    return inside.split(",")


def shard_names(path: str) -> list[str]:
    """The tars that a text names, here or elsewhere, in order."""
    here = local_path(path).expanduser()
    if address(path) is None and here.is_dir():
        found = sorted(str(file) for file in here.glob("*.tar"))
        if not found:
            raise BadDataError(f"{path}: expected .tar files in this folder, there are none.")
        return found
    return named_files(path if address(path) else str(here))


def staged(name: str) -> Path:
    """A tar on this machine; what lies elsewhere is brought into the cache, once."""
    url = address(name)
    path = local_path(name)
    if url is not None:
        digest = hashlib.sha256(f"{url} {file_version(url)}".encode()).hexdigest()[:32]
        path = cache_folder() / "shards" / f"{digest}.tar"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.{os.getpid()}")
            try:
                fetch_file(url, temporary)
                os.replace(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)
    if not path.is_file():
        raise BadDataError(f"{name}: no such file.", hint="Is the pattern of the tars right?")
    return path
