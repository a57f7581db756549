"""A result file as rows of the tables."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stockpot.errors import UserError
from stockpot.remote.copies import place_name
from stockpot.results.schema import CellResult, Scalar, Score
from stockpot.results.store import digest, parse_result

Row = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """What an index holds of one file."""

    cell: Row
    scores: list[Row]
    content: bytes


def entry_of(path: Path) -> Entry:
    """Read one result file."""
    try:
        # What is written between the two is noticed later: the file looks newer than it was.
        stat = path.stat()
        content = path.read_bytes()
    except OSError as problem:
        raise UserError(f"cannot read {path}: {problem.strerror or problem}.") from problem
    result = parse_result(content, str(path))
    place = path.resolve()
    cell = {
        "path": name_of(place),
        "folder": name_of(folder_of(place)),
        "file": plain(place.name),
        "sha256": hashlib.sha256(content).hexdigest(),
        "size": stat.st_size,
        "mtime_ns": stat.st_mtime_ns,
        **_about(result),
    }
    rows = [_score(score, at) for at, score in enumerate(result.scores)]
    return Entry(cell, rows, zlib.compress(content, 6))


def folder_of(path: Path) -> Path:
    """The run folder of a result file, or the folder it lies in."""
    return path.parent.parent if path.parent.name == "results" else path.parent


def name_of(place: str | Path) -> str:
    """What an index calls a folder or file: by its address, else by its whole path."""
    return plain(place_name(place))


def plain(text: str) -> str:
    """Text as every database keeps it: no NUL, and odd bytes of a file's name written out."""
    return text.replace("\0", "\ufffd").encode("utf-8", "backslashreplace").decode("utf-8")


def _about(result: CellResult) -> Row:
    key, model, data = result.key, result.model, result.data
    return {
        "question": digest(key),
        "model": plain(key.model),
        "entry": plain(key.entry),
        "training_seed": key.training_seed,
        "measure": plain(key.measure),
        "data": plain(key.data),
        "split": plain(data.split),
        "images": data.n,
        "convention": plain(result.convention),
        "seed": key.seed,
        "precision": key.precision,
        "architecture": plain(model.architecture),
        "parameters": model.parameters,
        "model_fingerprint": plain(key.model_fingerprint or model.fingerprint),
        "data_fingerprint": plain(key.data_fingerprint or data.fingerprint),
        "created": plain(result.provenance.created),
        "stockpot": plain(result.provenance.stockpot),
        "device": plain(result.cost.device),
        "wall_seconds": result.cost.wall_seconds,
    }


def _score(score: Score, position: int) -> Row:
    about = score.condition
    return {
        "position": position,
        "metric": plain(score.metric),
        "value": score.value,
        "ci_low": score.ci_low,
        "ci_high": score.ci_high,
        "n": score.n,
        "unit": score.unit,
        "higher_is_better": score.higher_is_better,
        "ci_method": plain(score.ci_method),
        "corruption": _text(about, "corruption"),
        "severity": _number(about, "severity"),
        "norm": _text(about, "norm"),
        "eps": _number(about, "eps"),
        "condition": plain(json.dumps(about, sort_keys=True, ensure_ascii=False)),
    }


def _text(condition: Mapping[str, Scalar], name: str) -> str | None:
    value = condition.get(name)
    return None if value is None else plain(str(value))


def _number(condition: Mapping[str, Scalar], name: str) -> float | None:
    value = condition.get(name)
    return None if value is None or isinstance(value, bool) else number(str(value))


def number(text: str) -> float | None:
    """What a text such as `0.5` or `8/255` says; None where it is no number."""
    above, slash, below = text.partition("/")
    try:
        return float(above) / float(below) if slash else float(above)
    except (ValueError, ZeroDivisionError):
        return None
