"""Questions to an index: one SELECT, or filters on the columns of `results`."""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple, cast

from sqlalchemy import Boolean, ColumnElement, Engine, Float, Integer, and_, between, not_, select

from stockpot.errors import BadParameterError, UnknownNameError
from stockpot.results.index.rows import number, plain
from stockpot.results.index.tables import results

SHOWN = ("model", "data", "measure", "metric", "value", "ci_low", "ci_high", "n")
"""Columns of an answer to filters, unless others are asked for."""

_FILTER = re.compile(r"\s*([A-Za-z_][\w.]*)\s*(>=|<=|!=|=|>|<|~)\s*(.*)", re.DOTALL)
_SQL = re.compile(r"\s*(select|with|values)\b(?!\s*(>=|<=|!=|=|>|<|~))", re.IGNORECASE)
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "!=": operator.ne, ">=": operator.ge, "<=": operator.le, ">": operator.gt,
    "<": operator.lt,
}  # fmt: skip
_CONDITION = "condition."


class Answer(NamedTuple):
    """Named columns and rows of plain values."""

    columns: list[str]
    rows: list[tuple[Any, ...]]

    def records(self) -> list[dict[str, Any]]:
        """A mapping for each row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


class Filter(NamedTuple):
    """`severity>=3`."""

    column: str
    sign: str
    value: str


def is_sql(words: str) -> bool:
    """Whether a text is a SELECT rather than a filter."""
    return _SQL.match(words) is not None


def by_sql(engine: Engine, sql: str, limit: int | None = None) -> Answer:
    """What one SELECT gives. Nothing can be changed by it.

    SQLite refuses every other action (`place.py`). PostgreSQL gets the text as the query of a
    cursor, which must be one statement that reads, in a transaction that may only read.
    """
    raw = engine.raw_connection()
    driver: Any = engine.dialect.dbapi
    try:
        named = {"name": "asked"} if engine.dialect.name == "postgresql" else {}
        cursor: Any = raw.cursor(**named)
        cursor.execute(sql)
        rows = cursor.fetchall() if limit is None else cursor.fetchmany(limit)
        columns = _unique([column[0] for column in cursor.description or ()])
        cursor.close()
    except (driver.Error, driver.Warning) as problem:
        said = str(problem).partition("\n")[0].rstrip(".")
        raise BadParameterError(
            f"the index does not answer this: {said}.", hint="Ask it one SELECT that only reads."
        ) from problem
    finally:
        raw.rollback()
        raw.close()
    return Answer(columns, [tuple(_value(value) for value in row) for row in rows])


def by_filters(
    engine: Engine,
    filters: Sequence[Filter],
    columns: Sequence[str] = SHOWN,
    limit: int | None = None,
) -> Answer:
    """The scores that all filters let through, by model, dataset, measure and place in the file."""
    own = [one for one in filters if not one.column.startswith(_CONDITION)]
    about = [one for one in filters if one.column.startswith(_CONDITION)]
    for name in (*columns, *(one.column for one in own)):
        if name not in results.c and not name.startswith(_CONDITION):
            raise UnknownNameError("column", name, results.c.keys())
    order = (results.c.model, results.c.data, results.c.measure, results.c.question)
    statement = (
        select(results).where(and_(True, *map(_clause, own))).order_by(*order, results.c.position)
    )
    if limit is not None and not about:
        statement = statement.limit(limit)
    kept = []
    with engine.connect() as connection:
        for row in connection.execute(statement).mappings():
            # Conditions are few and of any kind; they are looked at here, where a number is one.
            said = json.loads(row["condition"]) if about or _any_condition(columns) else {}
            if all(_lets_through(one, said) for one in about):
                kept.append(
                    tuple(
                        _value(said.get(name.removeprefix(_CONDITION)))
                        if name.startswith(_CONDITION)
                        else _value(row[name])
                        for name in columns
                    )
                )
    return Answer(list(columns), kept[:limit])


def parse(words: str) -> Filter:
    """`COLUMN=VALUE`, also with != > < >= <= and ~ (contains)."""
    found = _FILTER.fullmatch(words)
    if found is None:
        raise BadParameterError(
            f"{words!r}: expected SELECT ..., or a filter such as model=NAME or severity>=3."
        )
    return Filter(found[1], found[2], found[3].strip())


def _any_condition(columns: Sequence[str]) -> bool:
    return any(name.startswith(_CONDITION) for name in columns)


def _clause(one: Filter) -> ColumnElement[bool]:
    column = results.c[one.column]
    if isinstance(column.type, Boolean):
        if one.value.lower() not in ("true", "false") or one.sign not in ("=", "!="):
            raise BadParameterError(f"{one.column}: expected =true or =false, got {one.value!r}.")
        return column.is_((one.value.lower() == "true") == (one.sign == "="))
    if one.sign == "~":
        return column.icontains(plain(one.value), autoescape=True)
    if not isinstance(column.type, Float | Integer):
        return cast(ColumnElement[bool], _COMPARE[one.sign](column, plain(one.value)))
    value = number(one.value)
    if value is None:
        raise BadParameterError(f"{one.column}: expected a number, got {one.value!r}.")
    if one.sign in ("=", "!="):  # 8/255 is no number of finitely many digits
        near = between(column, value - 1e-9, value + 1e-9)
        return near if one.sign == "=" else not_(near)
    return cast(ColumnElement[bool], _COMPARE[one.sign](column, value))


def _lets_through(one: Filter, condition: dict[str, Any]) -> bool:
    known = condition.get(one.column.removeprefix(_CONDITION))
    if known is None:
        return False
    if one.sign == "~":
        return one.value.lower() in str(known).lower()
    value = number(one.value)
    if isinstance(known, bool) or not isinstance(known, int | float) or value is None:
        return bool(_COMPARE[one.sign](str(known).lower(), one.value.lower()))
    if one.sign in ("=", "!="):
        return math.isclose(known, value, abs_tol=1e-9) == (one.sign == "=")
    return bool(_COMPARE[one.sign](known, value))


def _unique(names: Sequence[str]) -> list[str]:
    """Names of columns, each of them once."""
    found: list[str] = []
    for name in names:
        count = sum(other == name or other.startswith(f"{name}_") for other in found)
        found.append(f"{name}_{count + 1}" if name in found else name)
    return found


def _value(value: Any) -> Any:
    """A value as JSON and CSV can hold it; what is no number is none."""
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{len(value)} bytes"
    return value if isinstance(value, str | int | float | None) else str(value)
