"""What the files of a run folder are by their names: of which model, its record, unfinished."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

RECORD = "stockpot.json"
"""What makes a folder under `models` a model (`checkpoints/record.py`)."""
MODEL = re.compile(r"models/([^/.][^/]*)/(.+)")
_TRAINING = re.compile(r"\..+\.partial")
"""Folders beside a model in which its training keeps its state: another machine goes on from it."""


def records_of(names: Iterable[str]) -> list[str]:
    """The records of all models among whose files these are."""
    models = {found[1] for name in names if (found := MODEL.fullmatch(name))}
    return [f"models/{model}/{RECORD}" for model in sorted(models)]


def model_of(name: str) -> str:
    """The model that a file is of; none where it is of no model."""
    found = MODEL.fullmatch(name)
    return found[1] if found else ""


def is_record(name: str) -> bool:
    """Whether a file is the record of a model."""
    found = MODEL.fullmatch(name)
    return found is not None and found[2] == RECORD


def whole_files(folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Files by name, with size and time; hidden ones and models without a record are unfinished."""
    for root, folders, files in os.walk(folder):
        inside = Path(root).relative_to(folder)
        if inside == Path("models"):
            folders[:] = [
                name
                for name in folders
                if _TRAINING.fullmatch(name) or (Path(root) / name / RECORD).is_file()
            ]
        folders[:] = [name for name in folders if name[0] != "." or _TRAINING.fullmatch(name)]
        for name in files:
            try:
                found = (Path(root) / name).stat()
            except OSError:
                continue  # gone meanwhile
            if not name.startswith("."):
                yield (inside / name).as_posix(), (found.st_size, found.st_mtime_ns)
