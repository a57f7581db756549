"""From result files to what the viewer shows: sets of images, conditions, and models' answers.

Models are compared where they were asked the same: the same images (by fingerprint), measure and
parameters. Per-image records give labels and predictions; a result without them still tells which
images were right.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stockpot.results.conditions import Condition, condition_of
from stockpot.results.named_apart import models_apart
from stockpot.results.samples import DataSource, read_samples
from stockpot.results.schema import CellResult
from stockpot.results.store import read_result

Codes = NDArray[np.uint16]
NOTHING = 0xFFFF
"""The code of no name."""


class Names:
    """Class names by number: labels and predictions of one set share them."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def codes(self, texts: pa.Array) -> Codes:
        """The numbers of dictionary-coded texts; `NOTHING` for nulls and beyond 65,535 names."""
        own = [self.number(text) for text in texts.dictionary.to_pylist()]
        table = np.array([*own, NOTHING], dtype=np.uint16)
        places: NDArray[np.int32] = texts.indices.fill_null(len(own)).to_numpy(zero_copy_only=False)
        return table[places]

    def codes_of(self, texts: Sequence[str]) -> Codes:
        """The numbers of texts."""
        return np.array([self.number(text) for text in texts], dtype=np.uint16)

    def number(self, text: str) -> int:
        """Of one name."""
        if text not in self._numbers and len(self._numbers) == NOTHING:
            return NOTHING
        return self._numbers.setdefault(text, len(self._numbers))


@dataclass(frozen=True)
class Column:
    """What one model did under one condition, image by image."""

    correct: NDArray[np.bool_]
    predictions: Codes | None = None
    confidence: NDArray[np.uint8] | None = None
    """In 254ths; 255 where it is not known."""


@dataclass
class Shown:
    """A condition under which images were shown."""

    id: str
    title: str
    about: Condition
    record: str
    cells: dict[str, CellResult] = field(default_factory=dict)
    """The result that it stands in, by model."""
    columns: dict[str, Column] = field(default_factory=dict)
    """By model."""


@dataclass
class ImageSet:
    """Images that models were shown, and all that is known of them."""

    title: str
    n: int
    fingerprint: str
    data: str
    """How the results call it."""
    outside: str = ""
    """The name of a set outside the data that a measure was told of."""
    names: Names = field(default_factory=Names)
    labels: Codes | None = None
    images: list[str] | None = None
    """What each image is called."""
    groups: list[str] | None = None
    source: DataSource = field(default_factory=DataSource)
    conditions: dict[str, Shown] = field(default_factory=dict)

    @property
    def models(self) -> list[str]:
        """Those that were shown its images."""
        return list(dict.fromkeys(m for shown in self.conditions.values() for m in shown.columns))


def collect(files: Sequence[Path]) -> list[ImageSet]:
    """The sets of images that these result files are about; the largest number of models first."""
    cells = list(zip(files, models_apart([read_result(path) for path in files]), strict=True))
    variants = _variants([cell for _, cell in cells])
    sets: dict[tuple[Any, ...], ImageSet] = {}
    for path, cell in cells:
        for row in _columns(path, cell, sets):
            _place(row, cell, variants[_question(cell)])
    found = [each for each in sets.values() if each.conditions]
    for each in found:
        each.conditions = dict(sorted(each.conditions.items(), key=lambda item: _order(item[1])))
    _tell_apart(found)
    return sorted(found, key=lambda each: -len(each.models))


class _Row(NamedTuple):
    """A column on its way to its place."""

    images: ImageSet
    record: str
    about: Condition
    column: Column


def _columns(path: Path, cell: CellResult, sets: dict[tuple[Any, ...], ImageSet]) -> Iterator[_Row]:
    samples = read_samples(path, cell)
    wanted = ("image", "name", "group", "label", "prediction", "confidence")
    known = dict(samples.records(*wanted)) if samples else {}
    for record in cell.outcomes:
        about = condition_of(cell, record)
        flags = cell.outcome(record)
        outside = about.set or ""
        if not about.is_answer or (record in cell.outcome_sizes and not outside):
            continue  # a fact of the image, or a sample: which images it holds is not known
        if record == "union" and sum(other.startswith("robust:") for other in cell.outcomes) < 2:
            continue  # all threats are one, which is there by its name
        place = (cell.key.data, cell.data.fingerprint, outside, len(flags))
        if place not in sets:
            title = f"{cell.key.data}: {outside}" if outside else cell.key.data
            known_as = (title, len(flags), cell.data.fingerprint, cell.key.data, outside)
            sets[place] = ImageSet(*known_as)
        images = sets[place]
        if samples and not outside and not images.source.source:
            images.source = samples.source
        predictions = confidence = None
        table = known.get(record)
        if table is not None:
            predictions, confidence = _answers(images, table)
        yield _Row(images, record, about, Column(flags, predictions, confidence))


def _answers(images: ImageSet, table: pa.Table) -> tuple[Codes | None, NDArray[np.uint8] | None]:
    """Predictions and confidences of a record; what it tells of the images is kept with them."""

    def column(name: str) -> pa.Array:
        return table[name].combine_chunks()

    if images.labels is None and column("label").null_count < len(table):
        images.labels = images.names.codes(column("label"))
    if images.images is None and column("name").null_count < len(table):
        images.images = [str(name or "") for name in column("name").to_pylist()]
    if images.groups is None and column("group").null_count < len(table):
        images.groups = [str(group or "") for group in column("group").to_pylist()]
    predicted = column("prediction")
    if predicted.null_count == len(table):
        return None, None
    sure = np.nan_to_num(column("confidence").to_numpy(zero_copy_only=False), nan=255 / 254)
    return images.names.codes(predicted), np.round(sure * 254).astype(np.uint8)


def _place(row: _Row, cell: CellResult, variant: str) -> None:
    """Put a column under its condition; what is clean is one condition, whatever measured it."""
    known, model = row.images.conditions, cell.key.model
    measure = cell.key.measure
    usual = measure in ("clean", "corruption", "adversarial", "shift", "imagenet_variants")
    said = "" if usual else measure
    if row.about.kind == "clean" and row.record == "correct":
        there = known.get("clean")
        other = there.columns.get(model) if there else None
        if other is not None and np.array_equal(other.correct, row.column.correct):
            if other.predictions is None and there is not None:
                there.columns[model] = row.column
            return
        said = measure if other is not None else ""
        variant = variant if other is not None else ""
    name = "clean" if row.record == "correct" and row.about.kind == "clean" else row.record
    place = "/".join(filter(None, (said, name, variant)))
    if place not in known:
        title = " · ".join(filter(None, (row.about.title, said, variant)))
        known[place] = Shown(place, title, row.about, row.record)
    known[place].columns.setdefault(model, row.column)
    known[place].cells.setdefault(model, cell)


_BESIDE = {"save", "export", "pictures", "per_class", "baseline", "bins", "top", "line"}
"""Parameters of measures that change no answer to an image."""


def _asked(cell: CellResult) -> dict[str, Any]:
    params = {key: value for key, value in cell.key.params.items() if key not in _BESIDE}
    return {**params, "seed": cell.key.seed}


def _question(cell: CellResult) -> tuple[str, str, str, str]:
    asked = json.dumps(_asked(cell), sort_keys=True)
    return cell.key.data, cell.data.fingerprint, cell.key.measure, asked


def _variants(cells: Sequence[CellResult]) -> dict[tuple[str, str, str, str], str]:
    """For each question what tells it from others of its measure; nothing where it is the one."""
    alike: dict[tuple[str, ...], dict[tuple[str, str, str, str], dict[str, Any]]] = {}
    for cell in cells:
        question = _question(cell)
        alike.setdefault(question[:3], {})[question] = _asked(cell)
    found = {}
    for questions in alike.values():
        keys = dict.fromkeys(key for params in questions.values() for key in params)
        differ = [
            key
            for key in keys
            if len({json.dumps(p.get(key), sort_keys=True) for p in questions.values()}) > 1
        ]
        for question, params in questions.items():
            found[question] = ", ".join(f"{key}={_short(params.get(key))}" for key in differ)
    return found


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


_KINDS = ("clean", "corruption", "attack", "shift", "dynamic")


def _order(shown: Shown) -> tuple[int, bool]:
    """Clean first; a corruption's own measure before others of the same pictures."""
    return _KINDS.index(shown.about.kind), shown.id != shown.record


def _tell_apart(sets: Sequence[ImageSet]) -> None:
    """Titles of sets that differ only in their images say how many there are, and which."""
    for each in sets:
        alike = [other for other in sets if other.data == each.data and other.title == each.title]
        if len(alike) > 1:
            each.title = f"{each.title} ({each.n:,} images, {each.fingerprint[:6]})"
