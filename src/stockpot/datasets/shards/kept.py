"""Encoded pictures of a stream, one after another in a file of the cache.

A stream is gone once it was read, and pictures are asked for again and again. So they go to disk
as they come, and memory holds where each lies.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from stockpot.datasets.pictures import Piece
from stockpot.errors import UserError
from stockpot.files import cache_folder


def keep(pictures: Iterable[bytes | Path]) -> list[Piece | Path]:
    """Where each picture lies: files where they are, bytes in a file named by their content."""
    folder = cache_folder() / "streams"
    found: list[Piece | Path] = []
    digest = hashlib.sha256()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, prefix=".", suffix=".tmp")
    except OSError as problem:
        raise UserError(f"cannot write {folder}: {problem.strerror or problem}.") from problem
    try:
        with os.fdopen(handle, "wb") as stream:
            for picture in pictures:
                if isinstance(picture, Path):
                    found.append(picture)
                    continue
                found.append(Piece(Path(name), stream.tell(), len(picture)))
                stream.write(picture)
                digest.update(len(picture).to_bytes(8, "little") + picture)
        place = folder / f"{digest.hexdigest()[:32]}.bin"
        os.replace(name, place)
    finally:
        Path(name).unlink(missing_ok=True)
    return [each._replace(path=place) if isinstance(each, Piece) else each for each in found]
