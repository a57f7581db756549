"""Per-image records of a cell: one parquet file beside its JSON, one row per image and record.

A record is what a result calls an outcome, such as `correct`, `fog:3` or `robust:linf:8/255`. Rows
of one record follow one another, in the order of the images. docs/viewer.md lists the columns.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from stockpot.errors import UserError
from stockpot.results.conditions import condition_of
from stockpot.results.samples_file import digest_of, samples_path
from stockpot.results.schema import CellResult

PROTOCOL = "stockpot-samples/1"
_ABOUT = b"stockpot"
_NAMES = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    [
        ("model", _NAMES),
        ("measure", _NAMES),
        ("data", _NAMES),
        ("record", _NAMES),
        ("kind", _NAMES),
        ("corruption", _NAMES),
        ("severity", pa.float32()),
        ("attack", _NAMES),
        ("norm", _NAMES),
        ("eps", _NAMES),
        ("set", _NAMES),
        ("image", pa.int32()),
        ("name", _NAMES),
        ("group", _NAMES),
        ("seen", pa.bool_()),
        ("label", _NAMES),
        ("prediction", _NAMES),
        ("confidence", pa.float32()),
        ("correct", pa.bool_()),
        ("flag", pa.bool_()),
    ]
)


@dataclass(frozen=True)
class Coded:
    """Texts as numbers of names; a number below 0 is none."""

    codes: NDArray[np.int64]
    names: Sequence[str]

    @cached_property
    def dictionary(self) -> pa.Array:
        """The names for a table; many records share them."""
        return pa.array(list(self.names), pa.string())

    @classmethod
    def of(cls, texts: Sequence[str]) -> Coded:
        """Texts of which many may be equal."""
        known = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        return cls(np.array([known[text] for text in texts], dtype=np.int64), list(known))


@dataclass(frozen=True)
class Answered:
    """What is known of the images of one record, besides the flag of each."""

    names: Coded | None = None
    groups: Coded | None = None
    labels: Coded | None = None
    predictions: Coded | None = None
    confidence: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class DataSource:
    """How the images can be had again: what `load_dataset` was told."""

    source: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


def encode_samples(
    result: CellResult, answered: Mapping[str, Answered], source: DataSource | None = None
) -> bytes:
    """The parquet file of a result's records."""
    about = {
        "protocol": PROTOCOL,
        "key": result.key.model_dump(mode="json"),
        "data": result.data.model_dump(mode="json"),
        "convention": result.convention,
        "source": source.source if source else "",
        "options": dict(source.options) if source else {},
    }
    schema = SCHEMA.with_metadata({_ABOUT: json.dumps(about).encode()})
    sink = io.BytesIO()
    parts = [_table(result, record, answered.get(record)) for record in result.outcomes]
    table = pa.concat_tables(parts or [SCHEMA.empty_table()]).unify_dictionaries()
    pq.write_table(
        table.replace_schema_metadata(schema.metadata),
        sink,
        compression="zstd",
        dictionary_pagesize_limit=1 << 26,  # beyond it, names would be written for every row
    )
    return sink.getvalue()


@dataclass(frozen=True)
class Samples:
    """The records of one cell, read as they are asked for."""

    path: Path
    about: Mapping[str, Any]

    @property
    def source(self) -> DataSource:
        """How the images can be had again."""
        return DataSource(str(self.about.get("source", "")), dict(self.about.get("options", {})))

    def records(self, *columns: str) -> Iterator[tuple[str, pa.Table]]:
        """Every record by name, with these columns of its rows; all of them when left out."""
        chosen = list(dict.fromkeys(["record", *columns])) if columns else None
        table = pq.read_table(self.path, columns=chosen).unify_dictionaries().combine_chunks()
        if not len(table):
            return
        coded = table["record"].chunk(0)
        codes, names = coded.indices.to_numpy(), coded.dictionary.to_pylist()
        starts = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
        for start, stop in pairwise(starts):
            yield names[codes[start]], table.slice(start, stop - start)


def read_samples(result_file: Path, result: CellResult) -> Samples | None:
    """The records beside a result file; None where it has none.

    Args:
        result_file: the JSON of the cell.
        result: what it holds; records of another state of the cell are refused.
    """
    if not result.samples:
        return None
    path = samples_path(result_file)
    if not path.is_file():
        raise UserError(
            f"{path} is missing: {result_file.name} says that there are records beside it.",
            hint="Copy it too, or measure again with --log-samples.",
        )
    if digest_of(path.read_bytes()) != result.samples:
        raise UserError(
            f"{path} is not the file that {result_file.name} was saved with.",
            hint="Copy both from one place, or measure again with --log-samples.",
        )
    known = pq.read_schema(path).metadata or {}
    return Samples(path, json.loads(known.get(_ABOUT, b"{}")))


def _table(result: CellResult, record: str, answered: Answered | None) -> pa.Table:
    flags = result.outcome(record)
    count = len(flags)
    about = condition_of(result, record)
    own, known = record not in result.outcome_sizes, answered or Answered()
    groups = known.groups
    if groups is None and own and (numbers := result.image_groups) is not None:
        groups = Coded.of([str(number) for number in numbers])
    seen = result.seen_images if own else None
    one = {
        "model": result.key.model,
        "measure": result.key.measure,
        "data": result.key.data,
        "record": record,
        "kind": about.kind,
        "corruption": about.corruption,
        "attack": about.attack,
        "norm": about.norm,
        "eps": about.eps,
        "set": about.set,
    }
    columns: dict[str, pa.Array] = {name: _same(text, count) for name, text in one.items()}
    severity = about.severity
    columns |= {
        "severity": pa.nulls(count, pa.float32())
        if severity is None
        else pa.array(np.full(count, severity, np.float32)),
        # Of a sample it is not known which images it is made of.
        "image": pa.array(np.arange(count), pa.int32())
        if own or answered is not None
        else pa.nulls(count, pa.int32()),
        "name": _coded(known.names, count),
        "group": _coded(groups, count),
        "seen": pa.nulls(count, pa.bool_()) if seen is None else pa.array(seen),
        "label": _coded(known.labels, count),
        "prediction": _coded(known.predictions, count),
        "confidence": pa.nulls(count, pa.float32())
        if known.confidence is None
        else pa.array(known.confidence, pa.float32(), mask=np.isnan(known.confidence)),
        "correct": pa.array(flags) if about.is_answer else pa.nulls(count, pa.bool_()),
        "flag": pa.array(flags),
    }
    return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _same(text: str | None, count: int) -> pa.Array:
    return _coded(None if text is None else Coded(np.zeros(count, np.int64), [text]), count)


def _coded(values: Coded | None, count: int) -> pa.Array:
    if values is None:
        return pa.nulls(count, _NAMES)
    codes = pa.array(values.codes, pa.int32(), mask=values.codes < 0)
    return pa.DictionaryArray.from_arrays(codes, values.dictionary)
