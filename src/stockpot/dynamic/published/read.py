"""Reading a published set back: every picture is the one that was written, or nothing is read."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from stockpot.datasets.dataset import ACCEPTED, Dataset
from stockpot.datasets.encoded import EncodedImages
from stockpot.datasets.load import load_dataset
from stockpot.dynamic.oracles.human import digest
from stockpot.dynamic.published.write import (
    LABELS,
    ORIGINALS,
    ORIGINALS_FOLDER,
    PROTOCOL,
    PROVENANCE,
    folder_of,
)
from stockpot.errors import BadDataError


@dataclass(frozen=True)
class Published:
    """A set: what was made and accepted, and everything it was made from."""

    made: Dataset
    originals: Dataset
    rows: list[int]
    """The original of each picture that was made."""
    about: dict[str, Any]


def read_published(data: Dataset) -> Published:
    """The set whose pictures these are; all or some of them."""
    root = _root(data)
    about = json.loads((root / PROVENANCE).read_text(encoding="utf-8"))
    if about.get("protocol") != PROTOCOL:
        raise BadDataError(
            f"{root}: expected a set of the protocol {PROTOCOL}, got {about.get('protocol')}.",
            hint="Sets without a protocol have no originals; export them anew.",
        )
    made, lines = _checked(root, root / LABELS, about["classes"])
    originals, _ = _checked(root / ORIGINALS_FOLDER, root / ORIGINALS, about["classes"])
    known = {line["file"]: at for at, line in enumerate(lines)}
    # In the order of the data, whose images may be known to have been seen.
    places = [known[name] for name in data.columns["file"] if name in known]
    rows = [int(lines[at]["row"]) for at in places]
    kept = made.take(places)
    if ACCEPTED in originals.columns:
        right = tuple(originals.columns[ACCEPTED][row] for row in rows)
        kept = replace(kept, columns={**kept.columns, ACCEPTED: right})
    return Published(kept, originals, rows, about)


def _root(data: Dataset) -> Path:
    items = data.images.items if isinstance(data.images, EncodedImages) else ()
    first = items[0] if items else None
    root = first.parent.parent if isinstance(first, Path) else None
    if root is None or not (root / PROVENANCE).is_file() or not (root / ORIGINALS).is_file():
        raise BadDataError(
            f"published: expected the folder of a published set, got {data.name}.",
            hint="Write one with `stockpot measure M --data D --with dynamic -p export=FOLDER`.",
        )
    return root


def _checked(folder: Path, table: Path, classes: list[str]) -> tuple[Dataset, list[dict[str, str]]]:
    """The pictures of a table in its order, each compared with its hash."""
    with table.open(newline="", encoding="utf-8") as stream:
        lines = list(csv.DictReader(stream))
    names = [folder_of(name) for name in classes]
    data = load_dataset("imagefolder", path=str(folder), classes=names)
    found = {name: row for row, name in enumerate(data.columns["file"])}
    if set(found) != {line["file"] for line in lines}:
        raise BadDataError(f"{folder}: its pictures are not those of {table.name}.")
    data = data.take([found[line["file"]] for line in lines])
    several = {ACCEPTED: tuple(line[ACCEPTED] for line in lines)} if ACCEPTED in lines[0] else {}
    data = replace(data, classes=tuple(classes), columns={**data.columns, **several})
    start = 0
    for batch in data.batches(64, None):
        for image, line in zip(batch.images, lines[start:], strict=False):
            if digest(image.float() / 255) != line["sha256"]:
                raise BadDataError(f"{folder / line['file']} was changed after it was published.")
        start += len(batch.images)
    labels = torch.tensor([classes.index(line["label"]) for line in lines])
    if not torch.equal(labels, data.labels):
        raise BadDataError(f"{table}: a label is not that of its folder.")
    return data, lines
