"""Label maps: from a file's or a folder's name to its class, read from CSV or JSON."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stockpot.datasets.natural.classes import imagenet_places, plain, word_places
from stockpot.errors import BadDataError

FILE_HEADINGS = ("file", "filename", "file_name", "image", "path", "name", "folder", "wnid", "id")
LABEL_HEADINGS = ("label", "class", "target", "index", "class_name", "category")


def read_label_map(path: Path) -> dict[str, str]:
    """Name -> class name or index, from a two-column CSV or a JSON object."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        raise BadDataError(f"labels: {path} cannot be read ({problem}).") from None
    read_pairs = _json_pairs if path.suffix.lower() == ".json" else _csv_pairs
    found: dict[str, str] = {}
    for name, label in read_pairs(text, path):
        if found.setdefault(name, label) != label:
            raise BadDataError(f"labels: {path} gives {name!r} two classes.")
    if not found:
        raise BadDataError(f"labels: {path} holds no labels.")
    return found


def resolve_classes(
    labels: Sequence[str], classes: int | str | Sequence[str] | None
) -> tuple[str, ...]:
    """The class names in order.

    Args:
        labels: the labels in use, names or indices.
        classes: the names in order, a text or JSON file of them, or how many there are; when not
            given, the names in use in alphabetical order, or the indices up to the largest.
    """
    if isinstance(classes, str) and not classes.isdigit():
        return _read_classes(Path(classes))
    if isinstance(classes, int | str):
        return tuple(str(index) for index in range(int(classes)))
    if classes is not None:
        return tuple(classes)
    if all(label.isdigit() for label in labels):
        return tuple(str(index) for index in range(max(map(int, labels)) + 1))
    return tuple(sorted(set(labels)))


class LabelIndex:
    """From a label to its number in a list of classes.

    A label is the name of a class; where no class is so named, another name of the same class of
    ImageNet (its id, or WordNet's words), or else an index.
    """

    def __init__(self, classes: Sequence[str]) -> None:
        self._names = {name: index for index, name in enumerate(classes)}
        places = imagenet_places(tuple(classes)) or ()
        self._places = {place: index for index, place in enumerate(places)}

    def find(self, label: str) -> int | None:
        """The number of a label's class, if it has one."""
        if label in self._names:
            return self._names[label]
        place = word_places().get(plain(label)) if self._places else None
        if place in self._places:
            return self._places[place]
        return int(label) if label.isdigit() and int(label) < len(self._names) else None

    def of(self, label: str, what: str) -> int:
        """The number of a label's class; `what` has this label."""
        found = self.find(label)
        if found is None:
            raise BadDataError(
                f"{what}: the label {label!r} is neither one of the {len(self._names)} classes "
                "nor an index.",
                hint="Give the class names in order with classes=.",
            )
        return found


def _read_classes(path: Path) -> tuple[str, ...]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise BadDataError(f"classes: {path} cannot be read ({problem}).") from None
    if path.suffix.lower() == ".json":
        found = json.loads(text)
        if isinstance(found, dict):  # index -> name
            found = [found[key] for key in sorted(found, key=int)]
        return tuple(str(name) for name in found)
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def _json_pairs(text: str, path: Path) -> list[tuple[str, str]]:
    try:
        found: Any = json.loads(text)
    except json.JSONDecodeError as problem:
        raise BadDataError(f"labels: {path} is not JSON ({problem}).") from None
    if not isinstance(found, dict):
        raise BadDataError(f"labels: expected a JSON object from name to class in {path}.")
    return [(str(name), str(label)) for name, label in found.items()]


def _csv_pairs(text: str, path: Path) -> list[tuple[str, str]]:
    delimiter = "\t" if "\t" in text.partition("\n")[0] else ","
    rows = [row for row in csv.reader(text.splitlines(), delimiter=delimiter) if row]
    if not rows or min(len(row) for row in rows) < 2:
        raise BadDataError(f"labels: expected a name and a class in every line of {path}.")
    heading = [cell.strip().lower() for cell in rows[0]]
    name_at = next((heading.index(word) for word in FILE_HEADINGS if word in heading), None)
    label_at = next((heading.index(word) for word in LABEL_HEADINGS if word in heading), None)
    if name_at is None or label_at is None or name_at == label_at:
        return [(row[0].strip(), row[1].strip()) for row in rows]
    return [(row[name_at].strip(), row[label_at].strip()) for row in rows[1:]]
