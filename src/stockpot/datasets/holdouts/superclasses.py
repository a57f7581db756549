"""Broad classes over narrow ones: a narrow class becomes the concept, the broad one the label.

- `cifar100`: its 20 superclasses of five, in the order of the code of arXiv:1807.01697, which holds
  out the first one to four of each.
- `imagenet22k`: 25 broad classes of that paper by WordNet ids: those of ImageNet-1K are `seen`, the
  others of ImageNet-22K `unseen`; what is published holds out all of the latter.
- a CSV or JSON file from a narrow class to its broad one, for any other data.

Pictures of classes that the table does not name are left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import torch

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.label_map import read_label_map
from stockpot.datasets.natural.classes import imagenet_classes, plain, word_places
from stockpot.errors import BadDataError

NAMED = ("cifar100", "imagenet22k")
ORDER = "order"
"""The column of a concept's place in its class, by a published list."""
PUBLISHED = "published"
"""The column that says whether a concept is `seen` or `unseen` where a paper has listed them."""


class Narrow(NamedTuple):
    """A narrow class in its broad one."""

    broad: str
    order: int
    published: str


def with_superclasses(data: Dataset, source: str) -> Dataset:
    """The data with broad classes as labels and the classes that they had as concepts."""
    table = _named(source) if source in NAMED else _from_file(source)
    narrow = [_find(name, table) for name in data.classes]
    broad = tuple(dict.fromkeys(entry.broad for entry in table.values()))
    if not any(narrow):
        raise BadDataError(
            f"superclasses: none of the classes of {data.name} ({', '.join(data.classes[:3])}, "
            f"...) is in {source}."
        )
    number = {name: place for place, name in enumerate(broad)}
    rows = [row for row, label in enumerate(data.labels.tolist()) if narrow[label]]
    chosen = data.take(rows)
    entries = [entry for label in chosen.labels.tolist() if (entry := narrow[label])]
    columns = {
        **chosen.columns,
        "concept": tuple(data.classes[label] for label in chosen.labels.tolist()),
        ORDER: tuple(str(entry.order) for entry in entries),
    }
    if any(entry.published for entry in entries):
        columns[PUBLISHED] = tuple(entry.published for entry in entries)
    said = repr((chosen.fingerprint, broad, entries))
    return replace(
        chosen,
        labels=torch.tensor([number[entry.broad] for entry in entries]),
        classes=broad,
        vocabulary=None,
        prompts=(),
        columns=columns,
        fingerprint=hashlib.sha256(said.encode()).hexdigest(),
    )


@cache
def _named(source: str) -> dict[str, Narrow]:
    text = (files("stockpot.datasets.holdouts") / "tables" / f"{source}.tsv").read_text("utf-8")
    found: dict[str, Narrow] = {}
    for line in text.splitlines():
        broad, *parts = line.split("\t")
        uses = ("seen", "unseen") if len(parts) > 1 else ("",)
        for use, part in zip(uses, parts, strict=True):
            for order, names in enumerate(part.split(", ")):
                found |= {name: Narrow(broad, order, use) for name in names.split("/")}
    return found


def _from_file(source: str) -> dict[str, Narrow]:
    found: dict[str, Narrow] = {}
    places: dict[str, int] = {}
    for name, broad in read_label_map(Path(source).expanduser()).items():
        places[broad] = places.get(broad, -1) + 1
        found[_plain(name)] = found[name] = Narrow(broad, places[broad], "")
    return found


def _find(name: str, table: dict[str, Narrow]) -> Narrow | None:
    """By its name, or by its WordNet id where it is called by words."""
    for spelled in (name, _plain(name), *_wnids(name)):
        if spelled in table:
            return table[spelled]
    return None


def _plain(name: str) -> str:
    return name.lower().replace("_", " ")


def _wnids(name: str) -> Sequence[str]:
    place = word_places().get(plain(name))
    return () if place is None else (imagenet_classes()[place].wnid,)
