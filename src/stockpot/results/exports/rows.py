"""One row per score: as CSV, as parquet, and as a pandas frame."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stockpot.errors import MissingDependencyError
from stockpot.results.schema import CellResult

if TYPE_CHECKING:
    import pandas

_SCORE = ("metric", "value", "n", "ci_low", "ci_high", "ci_method", "higher_is_better")
Row = dict[str, Any]


def score_rows(results: Sequence[CellResult]) -> list[Row]:
    """A row for every score, all with the same columns; what a score has not is None.

    A condition that is called like a column of ours (`seed`) stands as `condition_seed`.
    """
    conditions = sorted({key for cell in results for s in cell.scores for key in s.condition})
    rows = []
    for cell in results:
        head = {
            "model": cell.key.model,
            "measure": cell.key.measure,
            "data": cell.key.data,
            "split": cell.data.split,
        }
        tail = {
            "convention": cell.convention,
            "seed": cell.key.seed,
            "data_fingerprint": cell.data.fingerprint,
            "model_fingerprint": cell.model.fingerprint,
        }
        for score in cell.scores:
            own = {name: getattr(score, name) for name in _SCORE}
            taken = head.keys() | own.keys() | tail.keys()
            names = {key: f"condition_{key}" if key in taken else key for key in conditions}
            rows.append(head | own | {names[k]: score.condition.get(k) for k in conditions} | tail)
    return rows


def csv_file(results: Sequence[CellResult]) -> str:
    """The rows as CSV; nothing stands where there is nothing."""
    rows = score_rows(results)
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]) if rows else ["model"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def parquet_file(results: Sequence[CellResult]) -> bytes:
    """The rows as parquet, with their types.

    A condition that is text for one score and a number for another (`baseline`) is text for all.
    """
    import pyarrow
    from pyarrow import parquet

    rows = score_rows(results)
    columns = {}
    for name in rows[0] if rows else ():
        values = [row[name] for row in rows]
        kinds = {type(value) for value in values} - {type(None)}
        if kinds == {int, float}:
            values = [None if value is None else float(value) for value in values]
        elif len(kinds) > 1:
            values = [None if value is None else str(value) for value in values]
        columns[name] = values
    stream = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), stream)
    return stream.getvalue()


def frame(results: Sequence[CellResult]) -> pandas.DataFrame:
    """The rows as a pandas frame."""
    try:
        import pandas
    except ImportError as problem:
        raise MissingDependencyError(
            "a frame needs the package pandas.", hint="pip install pandas"
        ) from problem
    return pandas.DataFrame(score_rows(results))
