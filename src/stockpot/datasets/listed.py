"""Subsets that a file lists by the names of their pictures, such as RobustBench's 5000 of ImageNet.

Lists are read from the user's copy; the ones that results are quoted for are known by their hash.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from stockpot.errors import BadDataError
from stockpot.foreign import read_text

KNOWN = {
    "d4121626d07722a0126c35b1563042e46a546f1a05ce705f2cdc635896d58574": "robustbench-5k",
}
"""The sha256 of a list's lines -> the name of the subset (github.com/RobustBench/robustbench)."""
INSTALLED = {"robustbench": "helper_files/imagenet_test_image_ids.txt"}
"""Packages that bring a list, and where."""


class Listing(NamedTuple):
    """Names of pictures in the order of their list."""

    name: str
    files: tuple[str, ...]

    def choose(self, there: Iterable[str], where: Path) -> list[str]:
        """Those of the pictures that are listed, in the order of the list.

        Args:
            there: the pictures that there are, by their names from the folder of the classes.
            where: that folder, for messages.
        """
        whole = set(there)
        often = Counter(PurePosixPath(name).name for name in whole)
        # Lists may carry another folder than ours: pictures that lie flat have none.
        short = {PurePosixPath(name).name: name for name in whole}
        found, lacking = [], []
        for name in self.files:
            last = PurePosixPath(name).name
            if name in whole:
                found.append(name)
            elif often[last] == 1:
                found.append(short[last])
            else:
                lacking.append(name)
        if lacking:
            raise BadDataError(
                f"files: {len(lacking)} of the {len(self.files)} pictures of {self.name} are not "
                f"in {where}, such as {lacking[0]}."
            )
        return found


def read_listing(source: str) -> Listing:
    """The list in a text file, one picture a line, or that of an installed package by its name."""
    path = _installed(source) if source in INSTALLED else Path(source).expanduser()
    lines = [line.strip() for line in read_text(path, what=f"files: {path}").splitlines()]
    names = [line for line in lines if line]
    if not names:
        raise BadDataError(f"files: {path} lists no pictures.")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise BadDataError(f"files: {path} lists {twice[0]} twice.")
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()
    return Listing(KNOWN.get(digest, path.stem), tuple(names))


def _installed(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (path := Path(folder) / INSTALLED[package]).is_file():
            return path
    raise BadDataError(
        f"files: the package {package!r}, whose list is asked for, is not installed.",
        hint=f"Give the file instead: its repository has it as {package}/{INSTALLED[package]}.",
    )
