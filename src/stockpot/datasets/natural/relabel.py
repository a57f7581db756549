"""Bringing the labels of a hub dataset into the class space of a set of the ImageNet family."""

from __future__ import annotations

from dataclasses import replace

import torch

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.natural.classes import plain, word_places
from stockpot.datasets.natural.layout import NaturalSet
from stockpot.errors import BadDataError


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
