"""Loading a set of the ImageNet family: from its class folders, or from the hub."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.encoded import EncodedImages
from stockpot.datasets.hub import hub
from stockpot.datasets.listed import read_listing
from stockpot.datasets.natural.classes import plain, word_places
from stockpot.datasets.natural.layout import NaturalSet, located, picture_names
from stockpot.datasets.stream.file_check import OnBroken, content_fingerprint, inspect, usable_rows
from stockpot.datasets.words.conventions import CLIP, clip_words
from stockpot.datasets.words.words import Words
from stockpot.errors import BadDataError


class Source(NamedTuple):
    """Where a user says a set is, and how its columns are called on the hub."""

    path: str
    config: str | None = None
    image: str | None = None
    label: str | None = None
    on_broken: OnBroken = "stop"
    hub_split: str | None = None
    files: str | None = None
    """A list of the pictures to take, as `datasets/listed.py` reads it."""


def load_public(known: NaturalSet, source: Source, split: str) -> Dataset:
    """The set from class folders, or from a hub id or its files."""
    folder = located(known, Path(source.path).expanduser())
    if folder is None and source.files is not None:
        raise BadDataError(
            f"{known.name}: a list of files needs a folder of pictures, and {source.path} has no "
            "class folders."
        )
    if folder is None:
        return from_hub(known, source, split)
    files = {
        name: number
        for name in picture_names(folder)
        if "/" in name and (number := known.number(name.split("/")[0])) is not None
    }
    if not files:
        shown = ", ".join(sorted(entry.name for entry in folder.iterdir())[:4])
        raise BadDataError(
            f"{known.name}: expected its class folders in {folder}, there are {shown or 'none'}."
        )
    return folder_dataset(known, folder, files, split, source.on_broken, source.files)


def folder_dataset(
    known: NaturalSet,
    folder: Path,
    files: Mapping[str, int],
    split: str,
    on_broken: OnBroken = "stop",
    listed: str | None = None,
) -> Dataset:
    """A dataset of these files, each with its class, in the order of their names or of a list."""
    names = sorted(files)
    if listed is not None:
        listing = read_listing(listed)
        names, split = listing.choose(names, folder), f"{split}[{listing.name}]"
    seen = inspect([folder / name for name in names], folder)
    rows = usable_rows(names, seen.broken, on_broken, str(folder))
    if not rows:
        raise BadDataError(f"{folder}: no image is left.")
    kept = [names[row] for row in rows]
    labels = torch.tensor([files[name] for name in kept])
    digests = [seen.digests[row] for row in rows]
    return Dataset(
        name=known.name,
        split=split,
        images=EncodedImages(tuple(folder / name for name in kept), tuple(kept), tuple(digests)),
        labels=labels,
        classes=known.classes,
        fingerprint=content_fingerprint(kept, digests, labels, known.classes),
        licence=known.licence,
        vocabulary=spoken(known),
        columns={"file": tuple(kept)},
    )


def from_hub(known: NaturalSet, source: Source, split: str) -> Dataset:
    """The set from a hub id, or from parquet and arrow files of it."""
    local = Path(source.path).expanduser()
    if local.is_dir() and not any(local.rglob("*.parquet")) and not any(local.rglob("*.arrow")):
        raise BadDataError(
            f"{known.name}: {local} holds neither its class folders nor hub files.",
            hint=f"Looked for {', '.join(known.layout.folders)} and for class folders."
            + (" Images that lie flat need labels=FILE." if known.name == "imagenet" else ""),
        )
    data = hub(
        path=source.path,
        split=source.hub_split or known.hub_split,
        config=source.config,
        image=source.image,
        label=source.label,
        on_broken=source.on_broken,
    )
    found = relabelled(data, known, split)
    return replace(found, licence=known.licence, vocabulary=spoken(known))


def spoken(known: NaturalSet) -> Words:
    """CLIP's words for a set of ImageNet's classes, or its sentences around a set's own names."""
    if len(known.places) == len(known.classes):
        return clip_words(known.places)
    return Words(known.classes, clip_words().templates, CLIP)


def relabelled(data: Dataset, known: NaturalSet, split: str) -> Dataset:
    """The same pictures under the set's own class names.

    The hub may name classes as the set's folders are named, by WordNet ids or words, or number
    them: within the set, or among ImageNet's 1000 when a number is too large for the set.
    """
    used = sorted(set(data.labels.tolist()))
    numbers = [int(data.classes[label]) for label in used if data.classes[label].isdigit()]
    among_1000 = max(numbers, default=0) >= len(known.classes)
    found = {label: _number(data.classes[label], known, among_1000) for label in used}
    lost = [data.classes[label] for label, number in found.items() if number is None]
    if len(lost) == len(used) or (lost and not known.selective):
        raise BadDataError(
            f"{known.name}: the hub data calls a class {lost[0]!r}, which is none of its "
            f"{len(known.classes)} classes.",
            hint="Name the column of WordNet ids with label=.",
        )
    rows = [row for row, label in enumerate(data.labels.tolist()) if found[label] is not None]
    kept = data.take(rows) if lost else data
    labels = torch.tensor([found[label] for label in kept.labels.tolist()])
    return replace(kept, name=known.name, split=split, labels=labels, classes=known.classes)


def _number(word: str, known: NaturalSet, among_1000: bool) -> int | None:
    place = {place: number for number, place in enumerate(known.places)}
    if word.isdigit():
        return place.get(int(word)) if among_1000 else int(word)
    if (number := known.number(word)) is not None:
        return number
    own = {plain(each): number for number, each in enumerate(known.classes)}
    if plain(word) in own:
        return own[plain(word)]
    return place.get(word_places().get(plain(word), -1))
