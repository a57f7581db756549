"""The datasets that can be fetched by name, and what there is to say of a named one.

Nothing here imports torch until a dataset is fetched or described.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from stockpot.datasets.fetch.cache import cache_dir
from stockpot.datasets.fetch.progress import shown_progress
from stockpot.datasets.fetch.source import Progress
from stockpot.errors import UnknownNameError

if TYPE_CHECKING:
    from stockpot.datasets.named.definition import NamedSet

catalogue: Mapping[str, str] = {
    "cifar10": "stockpot.datasets.named.cifar10:CIFAR10",
    "mnist": "stockpot.datasets.named.mnist:MNIST",
    "fashion_mnist": "stockpot.datasets.named.fashion_mnist:FASHION_MNIST",
    "quickdraw": "stockpot.datasets.named.quickdraw:QUICKDRAW",
}
"""Name -> where its definition stands."""

EMBEDDED = ("icons",)


class DatasetInfo(NamedTuple):
    """What a named dataset holds and where it lies."""

    name: str
    counts: dict[str, int]
    classes: int
    licence: str
    fingerprint: str
    """One for the whole dataset, made of those of its splits."""
    fingerprints: dict[str, str]
    location: str


def find(name: str) -> NamedSet:
    """The definition of a dataset that can be fetched."""
    if name not in catalogue:
        raise UnknownNameError("dataset that can be fetched", name, catalogue)
    module, _, attribute = catalogue[name].partition(":")
    return cast("NamedSet", getattr(importlib.import_module(module), attribute))


def is_present(name: str) -> bool:
    """Whether a named dataset is here."""
    return name in EMBEDDED or _stored(name).is_file()


def fetch(name: str, progress: Progress | None = None) -> Path:
    """Bring a dataset here unless it is here; shows a bar unless another progress is given."""
    chosen = find(name)
    if progress is not None:
        return chosen.get(progress)
    with shown_progress() as shown:
        return chosen.get(shown)


def described_names() -> list[str]:
    """The named datasets that are here."""
    return [name for name in (*EMBEDDED, *catalogue) if is_present(name)]


def describe(name: str) -> DatasetInfo:
    """Counts, classes, licence and fingerprints of a named dataset."""
    if name not in EMBEDDED and name not in catalogue:
        raise UnknownNameError("named dataset", name, (*EMBEDDED, *catalogue))
    if name in EMBEDDED:
        return _describe_icons()
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


def _describe_icons() -> DatasetInfo:
    from stockpot.datasets.icons.loader import icons

    splits = {split: icons(split=split) for split in ("train", "val", "test")}
    marks = {split: part.fingerprint for split, part in splits.items()}
    return DatasetInfo(
        name="icons",
        counts={split: len(part) for split, part in splits.items()},
        classes=len(splits["test"].classes),
        licence=splits["train"].licence,
        fingerprint=_combined(marks),
        fingerprints=marks,
        location="embedded",
    )


def _combined(marks: Mapping[str, str]) -> str:
    text = "\n".join(f"{split} {mark}" for split, mark in marks.items())
    return hashlib.sha256(text.encode()).hexdigest()


def _stored(name: str) -> Path:
    return cache_dir() / "datasets" / f"{name}.safetensors"
