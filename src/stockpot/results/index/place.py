"""Where an index is, and connections to it: to write, or to read and nothing else."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Engine, NullPool, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from stockpot.errors import BadParameterError, MissingDependencyError, UserError

READS = "stockpot_reads"
"""The option of a connection that will write nothing, where others of its engine do."""

PATIENCE = 60.0
"""Seconds that a writer of a SQLite file waits for the others."""

_READS = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}


@dataclass(frozen=True)
class Place:
    """A SQLite file or a PostgreSQL database."""

    url: URL
    file: Path | None

    def __str__(self) -> str:
        """For people: without a password."""
        return str(self.file) if self.file else self.url.render_as_string(hide_password=True)

    @property
    def text(self) -> str:
        """As another process, started elsewhere, finds it."""
        return str(self.file) if self.file else self.url.render_as_string(hide_password=False)

    def engine(self, *, write: bool) -> Engine:
        """How it is reached. It keeps no connection, so that a forked process inherits none."""
        return _engine(self, write=write)

    @contextmanager
    def complaints(self) -> Iterator[None]:
        """What a database complains of is for the user to mend."""
        try:
            yield
        except (SQLAlchemyError, sqlite3.Error, OverflowError) as problem:
            said = " ".join(str(getattr(problem, "orig", None) or problem).split())
            raise UserError(f"the index {self}: {said.rstrip('.')}.") from problem


def place_of(given: str | Path) -> Place:
    """What a path or a URL means."""
    text = str(given)
    if "://" not in text:
        if not text.strip():
            raise BadParameterError("index: expected a file or a URL, got nothing.")
        return _file(Path(text))
    try:
        url = make_url(text)
        backend = url.get_backend_name()
    except (ArgumentError, ValueError):
        # The text itself is not repeated: it may hold a password.
        raise BadParameterError(
            "index: expected a file, or a URL such as postgresql://user@host/database."
        ) from None
    if backend == "sqlite" and url.database and url.database != ":memory:" and not url.query:
        return _file(Path(url.database))
    if backend not in ("postgresql", "postgres"):
        raise BadParameterError(
            f"index: expected a SQLite file or postgresql://user@host/database, got {backend}://."
        )
    return Place(url.set(drivername="postgresql+psycopg"), None)


@lru_cache(maxsize=16)  # it knows its statements from the first time on
def _engine(place: Place, *, write: bool) -> Engine:
    if place.file is not None:
        return _writing(place.file) if write else _reading(place.file)
    try:
        # A server that is not there must not be waited for until the end of the day.
        wait = {} if "connect_timeout" in place.url.query else {"connect_timeout": 10}
        found = create_engine(place.url, poolclass=NullPool, connect_args=wait)
    except ModuleNotFoundError as problem:
        raise MissingDependencyError(
            f"the index {place} needs the package psycopg.",
            hint="pip install 'stockpot[index]'",
        ) from problem
    if not write:
        event.listen(found, "connect", _read_only)
    return found


def _file(path: Path) -> Place:
    whole = path.expanduser().absolute()
    return Place(URL.create("sqlite", database=str(whole)), whole)


def _writing(file: Path) -> Engine:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UserError(f"cannot write {file}: {problem.strerror or problem}.") from problem
    engine = create_engine(
        URL.create("sqlite", database=str(file)),
        poolclass=NullPool,
        connect_args={"timeout": PATIENCE},
    )

    @event.listens_for(engine, "connect")
    def _(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # transactions begin where we say
        # A power failure may cost the last answers of an index, which their files still hold.
        connection.execute("PRAGMA synchronous=NORMAL")

    @event.listens_for(engine, "begin")
    def _(connection: Any) -> None:
        # Who will write says so at once: two that read first could not both go on.
        reads = connection.get_execution_options().get(READS)
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

    return engine


def _reading(file: Path) -> Engine:
    engine = create_engine(
        f"sqlite:///file:{quote(str(file))}?mode=ro&uri=true",
        poolclass=NullPool,
        connect_args={"timeout": PATIENCE},
    )

    @event.listens_for(engine, "connect")
    def _(connection: Any, _record: object) -> None:
        connection.isolation_level = None
        connection.set_authorizer(_only_reads)

    return engine


def _only_reads(action: int, first: str | None, second: str | None, *_: object) -> int:
    """No other file can be attached, no setting changed, no code loaded."""
    if action == sqlite3.SQLITE_PRAGMA:  # of all settings, the columns of a table are none
        return sqlite3.SQLITE_OK if first == "table_info" else sqlite3.SQLITE_DENY
    loads = action == sqlite3.SQLITE_FUNCTION and second == "load_extension"
    return sqlite3.SQLITE_OK if action in _READS and not loads else sqlite3.SQLITE_DENY


def _read_only(connection: Any, _record: object) -> None:
    connection.read_only = True
