"""Indexes on both databases; the oracle is a plain connection of the database's own driver."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from index_places import Place


@pytest.fixture
def sqlite_index(tmp_path: Path) -> Place:
    file = tmp_path / "index.db"

    def ask(sql: str) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(file)
        try:
            with connection:
                return connection.execute(sql).fetchall()
        finally:
            connection.close()

    return Place(str(file), ask)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "sqlite":
        found: Place = request.getfixturevalue("sqlite_index")
        return found
    import psycopg

    from postgres import database

    url = database(request.getfixturevalue("postgres"), request.node.name)

    def ask(sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(url) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    return Place(url, ask)
