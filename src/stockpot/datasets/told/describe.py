"""What there is to say of a dataset: a named one, or the user's own folder or file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from stockpot.datasets.by_content.split_names import WHOLE
from stockpot.datasets.catalogue import EMBEDDED, catalogue, find, is_present
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.errors import UnknownNameError, UserError


class DatasetInfo(NamedTuple):
    """What a dataset holds and where it lies."""

    name: str
    counts: dict[str, int]
    classes: int
    licence: str
    fingerprint: str
    """One for the whole dataset, made of those of its splits."""
    fingerprints: dict[str, str]
    location: str
    per_class: tuple[int, ...] = ()
    """Pictures of the smallest and of the largest class; empty where they were not counted."""


def describe(name: str, **options: Any) -> DatasetInfo:
    """Counts, classes, licence and fingerprints of a dataset.

    Args:
        name: as for `load_dataset`.
        **options: those of `load_dataset`.
    """
    if name in catalogue and not options:
        chosen = find(name)
        return DatasetInfo(
            name=name,
            counts=dict(chosen.counts),
            classes=len(chosen.classes),
            licence=chosen.licence,
            fingerprint=_combined(chosen.fingerprints),
            fingerprints=dict(chosen.fingerprints),
            location=str(chosen.path) if is_present(name) else "not fetched",
        )
    splits = _splits(name, options)
    marks = {split: part.fingerprint for split, part in splits.items()}
    first = next(iter(splits.values()))
    counts = [
        sum(int((part.labels == label).sum()) for part in splits.values())
        for label in range(len(first.classes))
    ]
    place = str(options.get("path", name))
    return DatasetInfo(
        name=first.name,
        counts={split: len(part) for split, part in splits.items()},
        classes=len(first.classes),
        licence=first.licence,
        fingerprint=_combined(marks),
        fingerprints=marks,
        location="embedded" if name in EMBEDDED else str(Path(place).expanduser().resolve()),
        per_class=(min(counts), max(counts)),
    )


def _splits(name: str, options: Mapping[str, Any]) -> dict[str, Dataset]:
    """Every split that there is; the whole where data are not parted."""
    if "split" in options:
        chosen = load_dataset(name, **options)
        return {chosen.split: chosen}
    shown: Dataset | None = None
    try:
        shown = load_dataset(name, **options)
    except UnknownNameError as problem:  # there are splits, and no test split among them
        if not set(problem.known) & {"train", "val"}:
            raise
    if shown is not None and shown.split == WHOLE:
        return {WHOLE: shown}
    found: dict[str, Dataset] = {}
    for split in ("train", "val", "test"):
        if shown is not None and shown.split == split:
            found[split] = shown
            continue
        with suppress(UserError):  # a split that is not there
            part = load_dataset(name, split=split, **options)
            found[part.split] = part
    return found


def _combined(marks: Mapping[str, str]) -> str:
    text = "\n".join(f"{split} {mark}" for split, mark in marks.items())
    return hashlib.sha256(text.encode()).hexdigest()
