"""The datasets that can be fetched by name. Nothing here imports torch until one is fetched."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

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


def _stored(name: str) -> Path:
    return cache_dir() / "datasets" / f"{name}.safetensors"
