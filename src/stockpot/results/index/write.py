"""Entries put into an index and taken out of it; any number of processes may do so at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, delete, insert
from sqlalchemy.dialects import postgresql, sqlite

from stockpot.results.index.rows import Entry
from stockpot.results.index.tables import cells, documents, scores


def put(connection: Connection, entries: Iterable[Entry]) -> None:
    """Write these files' rows; those of an earlier state of a file go.

    A file has one row whoever writes it, and its row is locked until its scores are there. All
    writers go by the order of the paths, so that none waits for one that waits for it.
    """
    upsert: Any = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement = upsert(cells)
    others = {name: statement.excluded[name] for name in set(cells.c.keys()) - _FIXED}
    statement = statement.on_conflict_do_update(index_elements=["path"], set_=others)
    statement = statement.returning(cells.c.id)
    for entry in sorted(entries, key=lambda one: str(one.cell["path"])):
        number = connection.execute(statement, entry.cell).scalar_one()
        connection.execute(delete(scores).where(scores.c.cell == number))
        connection.execute(delete(documents).where(documents.c.cell == number))
        if entry.scores:
            connection.execute(insert(scores), [{"cell": number, **row} for row in entry.scores])
        connection.execute(insert(documents), {"cell": number, "content": entry.content})


_FIXED = {"id", "path"}


def take_out(connection: Connection, numbers: Sequence[int]) -> None:
    """Remove these cells with their scores."""
    for at in range(0, len(numbers), 500):
        some = sorted(numbers)[at : at + 500]
        # Cells first: who writes one of them at this moment holds its row.
        connection.execute(delete(cells).where(cells.c.id.in_(some)))
        connection.execute(delete(scores).where(scores.c.cell.in_(some)))
        connection.execute(delete(documents).where(documents.c.cell.in_(some)))
