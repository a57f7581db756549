"""What a folder of pictures says of them beside their classes: `metadata.csv`, a line a picture.

Its column `file_name` holds the path from the folder on, as in the image folders of Hugging Face
`datasets`; every other column becomes one of the dataset, such as `style`, `concept` and `version`.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from stockpot.datasets.dataset import ACCEPTED
from stockpot.errors import BadDataError, shortened
from stockpot.files import write_atomic
from stockpot.foreign import reading

METADATA = "metadata.csv"
FILE_NAME = "file_name"
_TAKEN = ("file", ACCEPTED)
"""Columns that mean something else in a dataset."""


def read_facts(folder: Path, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Columns of these pictures; empty texts for those that the file does not name."""
    path = folder / METADATA
    if not path.exists():
        return {}
    with reading(path), path.open(encoding="utf-8-sig", newline="") as file:
        lines = list(csv.DictReader(file))
    if not lines or FILE_NAME not in lines[0]:
        raise BadDataError(f"{path}: expected a line of headings with {FILE_NAME} among them.")
    by_name: dict[str, dict[str, str]] = {}
    for line in lines:
        if by_name.setdefault(line[FILE_NAME], line) != line:
            raise BadDataError(f"{path} says two things of {shortened(line[FILE_NAME], 80)}.")
    headings = [key for key in lines[0] if key and key not in (FILE_NAME, *_TAKEN)]
    return {
        key: tuple((by_name.get(name, {}).get(key) or "") for name in names) for key in headings
    }


def with_facts(fingerprint: str, facts: Mapping[str, Sequence[str]]) -> str:
    """The fingerprint of pictures of which that is said: scores by style and intervals by original
    depend on it."""
    if not facts:
        return fingerprint
    return hashlib.sha256(repr((fingerprint, sorted(facts.items()))).encode()).hexdigest()


def write_facts(folder: Path, names: Sequence[str], columns: Mapping[str, Sequence[str]]) -> None:
    """Write the columns of these pictures beside their class folders."""
    path = folder / METADATA
    kept = {key: values for key, values in columns.items() if key not in _TAKEN}
    rows = [",".join(map(_quoted, (FILE_NAME, *kept)))]
    for row, name in enumerate(names):
        rows.append(",".join(map(_quoted, (name, *(values[row] for values in kept.values())))))
    write_atomic(path, "\n".join(rows) + "\n")


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if any(sign in text for sign in ',"\n\r') else text
