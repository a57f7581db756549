"""The tables of an index, and the view that is asked: one row for each score that counts."""

from __future__ import annotations

import sqlite3
import time

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    func,
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeEngine

from stockpot.errors import UserError
from stockpot.results.index.place import PATIENCE, READS, Place

VERSION = 1
_WHOLE = BigInteger().with_variant(Integer, "sqlite")
metadata = MetaData()

marks = Table("stockpot_index", metadata, Column("version", Integer, nullable=False))

cells = Table(
    "cells",
    metadata,
    Column("id", _WHOLE, primary_key=True, autoincrement=True),
    Column("path", Text, nullable=False, unique=True),
    Column("folder", Text, nullable=False, index=True),
    Column("file", Text, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("mtime_ns", BigInteger, nullable=False),
    Column("question", Text, nullable=False, index=True),
    Column("model", Text, nullable=False, index=True),
    Column("entry", Text),
    Column("training_seed", BigInteger),
    Column("measure", Text, nullable=False),
    Column("data", Text, nullable=False),
    Column("split", Text),
    Column("images", BigInteger),
    Column("convention", Text),
    Column("seed", BigInteger),
    Column("precision", Text),
    Column("architecture", Text),
    Column("parameters", BigInteger),
    Column("model_fingerprint", Text, nullable=False),
    Column("data_fingerprint", Text),
    Column("created", Text, nullable=False),
    Column("stockpot", Text),
    Column("device", Text),
    Column("wall_seconds", Float),
)

scores = Table(
    "scores",
    metadata,
    Column("cell", _WHOLE, primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("metric", Text, nullable=False),
    Column("value", Float),  # SQLite keeps no NaN: it is NULL there
    Column("ci_low", Float),
    Column("ci_high", Float),
    Column("n", BigInteger),
    Column("unit", Text),
    Column("higher_is_better", Boolean),
    Column("ci_method", Text),
    Column("corruption", Text),
    Column("severity", Float),
    Column("norm", Text),
    Column("eps", Float),
    Column("condition", Text, nullable=False),
)

documents = Table(
    "documents",
    metadata,
    Column("cell", _WHOLE, primary_key=True),
    Column("content", LargeBinary, nullable=False),  # the file, deflated
)

_OF_CELL = (
    "model", "entry", "training_seed", "measure", "data", "split", "images", "convention", "seed",
    "precision", "architecture", "parameters", "model_fingerprint", "data_fingerprint", "created",
    "stockpot", "device", "wall_seconds", "folder", "file", "question",
)  # fmt: skip
_OF_SCORE = tuple(column.name for column in scores.columns if column.name != "cell")

_COUNTS = """NOT EXISTS (
    SELECT 1 FROM cells AS later
    WHERE later.question = cells.question
    AND later.model_fingerprint = cells.model_fingerprint
    AND (later.created > cells.created
         OR (later.created = cells.created AND later.path > cells.path)))"""
"""A question that several folders answer counts once: with the later answer."""

_VIEW = f"""CREATE VIEW results AS
SELECT {", ".join(f"cells.{name}" for name in _OF_CELL)},
       {", ".join(f"scores.{name}" for name in _OF_SCORE)}
FROM cells JOIN scores ON scores.cell = cells.id
WHERE {_COUNTS}"""


def _kinds() -> dict[str, TypeEngine[object]]:
    of_cell: dict[str, TypeEngine[object]] = {name: cells.c[name].type for name in _OF_CELL}
    return of_cell | {name: scores.c[name].type for name in _OF_SCORE}


results = Table("results", MetaData(), *(Column(name, kind) for name, kind in _kinds().items()))
"""The view as a table that is only read."""


def make(engine: Engine, place: Place) -> None:
    """Make the tables where there are none; any number of processes may do so at once."""
    if _made(engine):
        return
    if place.file is not None:
        _let_readers_be(engine)
    with engine.begin() as connection:
        _alone(connection)
        if not _there(connection, place):
            metadata.create_all(connection)
            connection.execute(text(_VIEW))
            connection.execute(insert(marks).values(version=VERSION))


def _made(engine: Engine) -> bool:
    """Whether there is an index of this version; what else there may be is looked at later."""
    try:
        with engine.connect().execution_options(**{READS: True}) as connection:
            return bool(connection.scalar(select(func.max(marks.c.version))) == VERSION)
    except (DBAPIError, sqlite3.Error):
        return False


def drop(engine: Engine) -> None:
    """Remove the tables of an index of any version, and nothing else."""
    with engine.begin() as connection:
        _alone(connection)
        if inspect(connection).has_table(marks.name):
            connection.execute(text("DROP VIEW IF EXISTS results"))
            metadata.drop_all(connection)


def check(connection: Connection, place: Place) -> None:
    """Whether there is an index of this version."""
    if not _there(connection, place):
        raise UserError(
            f"there is no index in {place}.",
            hint=f"Make one: stockpot results index RUN --index {place}",
        )


def _there(connection: Connection, place: Place) -> bool:
    known = inspect(connection)
    if not known.has_table(marks.name):
        others = {cells.name, scores.name, documents.name, results.name} & {
            *known.get_table_names(),
            *known.get_view_names(),
        }
        if others:
            raise UserError(
                f"{place} holds tables of another program ({', '.join(sorted(others))}).",
                hint="Give the index a database of its own.",
            )
        return False
    version = connection.scalar(select(func.max(marks.c.version)))
    if version != VERSION:
        raise UserError(
            f"the index {place} is of version {version}, and this Stockpot writes {VERSION}.",
            hint="Make it again from the files: stockpot results index RUN... --rebuild",
        )
    return True


def _alone(connection: Connection) -> None:
    """PostgreSQL makes one table twice at once; SQLite has locked the whole file already."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(func.hashtext(marks.name))))


def _let_readers_be(engine: Engine) -> None:
    """With a log beside the file, who reads does not wait for who writes."""
    end = time.monotonic() + PATIENCE
    while True:
        connection = engine.raw_connection()
        try:
            cursor = connection.cursor()
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except Exception as problem:
            # Others who do the same at once are not waited for by SQLite itself.
            if "locked" not in str(problem) or time.monotonic() > end:
                raise
            time.sleep(0.05)
        finally:
            connection.close()
