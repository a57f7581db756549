"""The samples of a tar: files that follow one another and share their name up to the first dot.

Only headers are read, one after another; nothing is unpacked, and what is no plain file is passed
over.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from stockpot.datasets.pictures import Piece
from stockpot.errors import BadDataError

_NAME = re.compile(r"((?:.*/)?[^./][^./]*)\.([^/]+)")


class Sample(NamedTuple):
    """One sample: its key, and its files by what follows the first dot, in small letters."""

    key: str
    files: dict[str, Piece]


def tar_samples(path: Path, name: str = "") -> Iterator[Sample]:
    """The samples in the order of the tar.

    Args:
        path: the tar.
        name: what messages call it.
    """
    name = name or str(path)
    current: Sample | None = None
    try:
        with tarfile.open(path, "r:") as tar:
            while (member := tar.next()) is not None:
                # Else every header of a large tar stays in memory.
                tar.members.clear()  # type: ignore[attr-defined]
                found = _NAME.fullmatch(member.name)
                if found is None or not member.isreg() or member.name.startswith("__"):
                    continue
                if member.issparse():
                    raise BadDataError(f"{name}: {member.name} is sparse; write the tar plainly.")
                key, ending = found[1], found[2].lower()
                if current is None or current.key != key:
                    if current is not None:
                        yield current
                    current = Sample(key, {})
                if ending in current.files:
                    raise BadDataError(f"{name}: {member.name} is there twice in one sample.")
                current.files[ending] = Piece(path, member.offset_data, member.size)
    except (tarfile.TarError, EOFError, ValueError) as problem:
        raise BadDataError(
            f"{name} cannot be read as a plain tar ({problem}).",
            hint="Unpack a compressed one first." if path.suffix != ".tar" else "",
        ) from None
    if current is not None:
        yield current
