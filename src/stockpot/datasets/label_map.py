"""Label maps: from a file's or a folder's name to its class, read from CSV or JSON."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from stockpot.datasets.natural.classes import imagenet_places, plain, word_places
from stockpot.errors import BadDataError, shortened
from stockpot.foreign import parse_json, read_text, reading

MOST_CLASSES = 1_000_000
"""A label beyond it is no index of a class, and a list up to it would fill the memory."""
FILE_HEADINGS = ("file", "filename", "file_name", "image", "path", "name", "folder", "wnid", "id")
LABEL_HEADINGS = ("label", "class", "target", "index", "class_name", "category")


def read_label_map(path: Path) -> dict[str, str]:
    """Name -> class name or index, from a two-column CSV or a JSON object."""
    text = read_text(path, what=f"labels: {path}")
    read_pairs = _json_pairs if path.suffix.lower() == ".json" else _csv_pairs
    found: dict[str, str] = {}
    for name, label in read_pairs(text, path):
        if found.setdefault(name, label) != label:
            raise BadDataError(f"labels: {path} gives {name!r} two classes.")
    if not found:
        raise BadDataError(f"labels: {path} holds no labels.")
    return found


def label_text(value: Any, what: str) -> str:
    """A label as text, a name or a number; `what` has it."""
    missing = isinstance(value, float) and math.isnan(value)
    if missing or not isinstance(value, str | int | float) or not str(value).strip():
        raise BadDataError(
            f"{what}: expected the name or the number of a class, got "
            f"{shortened(repr(value), 60)}.",
            hint="Leave out what has no label.",
        )
    return str(value)


def resolve_classes(
    labels: Sequence[str], classes: int | str | Sequence[str] | None
) -> tuple[str, ...]:
    """The class names in order.

    Args:
        labels: the labels in use, names or indices.
        classes: the names in order, a text or JSON file of them, or how many there are; when not
            given, the names in use in alphabetical order, or the indices up to the largest.
    """
    if isinstance(classes, str) and not classes.isdecimal():
        return _read_classes(Path(classes))
    if isinstance(classes, int | str):
        return _numbered(int(classes), "classes")
    if classes is not None:
        return tuple(classes)
    if all(label.isdecimal() for label in labels):
        return _numbered(max((_index(label) for label in labels), default=-1) + 1, "labels")
    return tuple(sorted(set(labels)))


def _numbered(count: int, what: str) -> tuple[str, ...]:
    if not 0 <= count <= MOST_CLASSES:
        raise BadDataError(f"{what}: expected at most {MOST_CLASSES} classes, got {count:,}.")
    return tuple(str(index) for index in range(count))


def _index(label: str) -> int:
    # Python refuses to read numbers of thousands of digits.
    return int(label) if len(label) < 20 else 10**19


class LabelIndex:
    """From a label to its number in a list of classes.

    A label is the name of a class; where no class is so named, another name of the same class of
    ImageNet (its id, or WordNet's words), or else an index.
    """

    def __init__(self, classes: Sequence[str]) -> None:
        self._classes = tuple(classes)
        self._names = {name: index for index, name in enumerate(classes)}
        self._often = {name: count for name, count in Counter(classes).items() if count > 1}

    @cached_property
    def _places(self) -> dict[int, int]:
        # Made for a label that is none of the names: to read all words of ImageNet takes as long as
        # ten thousand labels.
        places = imagenet_places(self._classes) or ()
        return {place: index for index, place in enumerate(places)}

    def find(self, label: str) -> int | None:
        """The number of a label's class, if it has one, and no more."""
        if label in self._often:
            return None
        if label in self._names:
            return self._names[label]
        place = word_places().get(plain(label)) if self._places else None
        if place in self._places:
            return self._places[place]
        index = _index(label) if label.isdecimal() else None
        return index if index is not None and index < len(self._classes) else None

    def of(self, label: str, what: str) -> int:
        """The number of a label's class; `what` has this label."""
        found = self.find(label)
        if label in self._often:
            raise BadDataError(
                f"{what}: the label {shortened(repr(label), 60)} is the name of "
                f"{self._often[label]} classes.",
                hint="Give the number of the class instead.",
            )
        if found is None:
            raise BadDataError(
                f"{what}: the label {shortened(repr(label), 60)} is neither one of the "
                f"{len(self._classes)} classes nor an index.",
                hint="Give the class names in order with classes=.",
            )
        return found


def _read_classes(path: Path) -> tuple[str, ...]:
    text = read_text(path, what=f"classes: {path}")
    if path.suffix.lower() == ".json":
        found = parse_json(text, f"classes: {path}")
        if isinstance(found, dict) and all(key.isdecimal() for key in found):  # index -> name
            found = [found[key] for key in sorted(found, key=int)]
        if not isinstance(found, list) or not all(isinstance(name, str | int) for name in found):
            raise BadDataError(f"classes: expected a JSON list of names in {path}.")
        return tuple(str(name) for name in found)
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def _json_pairs(text: str, path: Path) -> list[tuple[str, str]]:
    found = parse_json(text, f"labels: {path}")
    if not isinstance(found, dict):
        raise BadDataError(f"labels: expected a JSON object from name to class in {path}.")
    return [(name, label_text(label, f"labels: {path}: {name}")) for name, label in found.items()]


def _csv_pairs(text: str, path: Path) -> list[tuple[str, str]]:
    delimiter = "\t" if "\t" in text.partition("\n")[0] else ","
    with reading(f"labels: {path}"):  # such as a cell of more than 128 kB
        rows = [row for row in csv.reader(text.splitlines(), delimiter=delimiter) if row]
    if not rows or min(len(row) for row in rows) < 2:
        raise BadDataError(f"labels: expected a name and a class in every line of {path}.")
    heading = [cell.strip().lower() for cell in rows[0]]
    name_at = next((heading.index(word) for word in FILE_HEADINGS if word in heading), None)
    label_at = next((heading.index(word) for word in LABEL_HEADINGS if word in heading), None)
    if name_at is None or label_at is None or name_at == label_at:
        name_at, label_at = 0, 1
    else:
        rows = rows[1:]
    pairs = [(row[name_at].strip(), row[label_at].strip()) for row in rows]
    return [(name, label_text(label, f"labels: {path}: {name}")) for name, label in pairs]
