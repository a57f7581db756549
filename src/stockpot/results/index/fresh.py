"""Whether an index says what the files say."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, select

from stockpot.results.index.rows import name_of, plain
from stockpot.results.index.tables import cells
from stockpot.results.store import files_of
from stockpot.stages import stage


class Known(NamedTuple):
    """What an index knows of a file."""

    number: int
    size: int
    mtime_ns: int
    sha256: str


@dataclass(frozen=True)
class Changes:
    """What has happened to the files of a folder since they were indexed."""

    new: list[Path] = field(default_factory=list)
    changed: list[Path] = field(default_factory=list)
    gone: dict[str, int] = field(default_factory=dict)
    """Path -> number of the cell: removed, or no part of the run's present recipe."""

    def __bool__(self) -> bool:
        return bool(self.new or self.changed or self.gone)

    def __str__(self) -> str:
        counts = {"new": len(self.new), "changed": len(self.changed), "gone": len(self.gone)}
        said = [f"{count} {word}" for word, count in counts.items() if count]
        return ", ".join(said) or "nothing new"


@stage("load")
def changes_of(connection: Connection, folder: Path, *, thorough: bool = False) -> Changes:
    """Compare a folder with its rows: by size and time, and by content where those differ.

    Args:
        connection: to the index.
        folder: a run folder that lies on this machine.
        thorough: read all files and compare their content, whatever their time says.
    """
    # The rows first: a file is there before its row is, so that what a run adds at this moment
    # can look new and never gone.
    name = name_of(folder)
    known = {
        path: Known(*rest)
        for path, *rest in connection.execute(
            select(cells.c.path, cells.c.id, cells.c.size, cells.c.mtime_ns, cells.c.sha256).where(
                cells.c.folder == name
            )
        )
    }
    found = Changes()
    for path in files_of(folder) if folder.is_dir() else ():
        before = known.pop(f"{name}/{plain(path.relative_to(folder).as_posix())}", None)
        if before is None:
            found.new.append(path)
        elif _differs(path, before, thorough=thorough):
            found.changed.append(path)
    found.gone.update({path: one.number for path, one in known.items()})
    return found


def _differs(path: Path, known: Known, *, thorough: bool) -> bool:
    try:
        stat = os.stat(path)
        if not thorough and (stat.st_size, stat.st_mtime_ns) == (known.size, known.mtime_ns):
            return False
        return hashlib.sha256(path.read_bytes()).hexdigest() != known.sha256
    except OSError:
        return True
