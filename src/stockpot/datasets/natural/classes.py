"""ImageNet's 1000 classes, the classes of the sets derived from it, and who answers to what.

The order of the 1000 is that of their WordNet ids, which is the order of every model's outputs.
Words are not unique (there are two cranes), so places and ids decide and words only help.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import NamedTuple

from stockpot.errors import BadDataError

COUNT = 1000
LEAST_AGREEMENT = 0.4
"""The share of names that must be known and in place; hand-polished lists keep about half."""
MOST_CONTRADICTION = 0.02
NUMBER = re.compile(r"(?:label[ _])?(\d+)", re.IGNORECASE)

CLEARER = {
    "n02012849": "crane bird",
    "n03126707": "construction crane",
    "n02113186": "Cardigan Welsh corgi",
    "n03710721": "tank suit",
}
"""Names for the classes whose first word another class has too."""


class ImageNetClass(NamedTuple):
    """One of the 1000."""

    wnid: str
    words: str
    """All of WordNet's words for it, with commas between, as most models carry them."""
    name: str
    """One short name that no other class has."""
    sets: str
    """`r` and `a` where ImageNet-R and ImageNet-A have it."""


@cache
def imagenet_classes() -> tuple[ImageNetClass, ...]:
    """The 1000 in order."""
    found = []
    for wnid, words, sets in _table("imagenet"):
        name = CLEARER.get(wnid, words.partition(",")[0].strip())
        found.append(ImageNetClass(wnid, words, name, sets))
    return tuple(found)


@cache
def imagenet_names() -> tuple[str, ...]:
    """The short names of the 1000."""
    return tuple(each.name for each in imagenet_classes())


@cache
def subset(which: str) -> tuple[int, ...]:
    """The places of the 200 classes of ImageNet-R (`r`) or ImageNet-A (`a`) among the 1000."""
    return tuple(place for place, each in enumerate(imagenet_classes()) if which in each.sets)


@cache
def wnid_places() -> Mapping[str, int]:
    """WordNet id -> place among the 1000."""
    return {each.wnid: place for place, each in enumerate(imagenet_classes())}


@cache
def word_places() -> Mapping[str, int]:
    """Every way to say a class that means no other: id, short name, all its words, one of them."""
    words = [
        (plain(word), place)
        for place, each in enumerate(imagenet_classes())
        for word in dict.fromkeys((each.words, *each.words.split(",")))
    ]
    often = Counter(word for word, _ in words)
    found = {word: place for word, place in words if often[word] == 1}
    found |= {plain(each.name): place for place, each in enumerate(imagenet_classes())}
    return {**found, **wnid_places()}


@lru_cache(maxsize=1 << 16)
def plain(name: str) -> str:
    """A name as it is compared: no case, one space for spaces, hyphens and underscores."""
    return re.sub(r"[\s_\-]+", " ", name).strip().casefold()


def worded(classes: tuple[str, ...]) -> tuple[str, ...]:
    """Names as one says them: a WordNet id of ImageNet becomes its short name, others stay."""
    known = wnid_places()
    names = imagenet_names()
    return tuple(names[known[name]] if name in known else name for name in classes)


@lru_cache(maxsize=64)
def imagenet_outputs(classes: tuple[str, ...]) -> tuple[int, ...] | None:
    """For each of the 1000 its place in a list of classes; none where the list has others.

    Lists agree on the order and on little else: some name classes by all of WordNet's words, some
    by one, some by id, some by number, and some have a background class before the rest. Names
    therefore confirm an order; they decide only where there is none.
    """
    for skipped in (0, 1):
        if len(classes) == COUNT + skipped and _in_order(classes[skipped:]):
            return tuple(range(skipped, COUNT + skipped))
    known = word_places()
    found = {known[plain(name)]: row for row, name in enumerate(classes) if plain(name) in known}
    return tuple(found[place] for place in range(COUNT)) if len(found) == COUNT else None


@lru_cache(maxsize=64)
def imagenet_places(classes: tuple[str, ...]) -> tuple[int, ...] | None:
    """For each class of a list its place among the 1000; none unless each has one of its own."""
    if len(classes) == COUNT and (outputs := imagenet_outputs(classes)) is not None:
        return tuple(place for _, place in sorted(zip(outputs, range(COUNT), strict=True)))
    known = word_places()
    found = [known[plain(name)] for name in classes if plain(name) in known]
    return tuple(found) if 1 < len(classes) == len(found) == len(set(found)) else None


def _in_order(names: tuple[str, ...]) -> bool:
    numbers = [NUMBER.fullmatch(name) for name in names]
    if all(numbers):
        found = [int(match.group(1)) for match in numbers if match]
        return found in (list(range(COUNT)), list(range(1, COUNT + 1)))
    places = [word_places().get(plain(name)) for name in names]
    known = sum(place is not None for place in places)
    agree = sum(place == row for row, place in enumerate(places))
    return agree >= LEAST_AGREEMENT * COUNT and known - agree <= MOST_CONTRADICTION * COUNT


class Answered(NamedTuple):
    """A class of another set and the ImageNet classes that answer it."""

    folder: str
    name: str
    places: tuple[int, ...]


@cache
def objectnet_classes() -> tuple[Answered, ...]:
    """The 113 classes that ObjectNet shares with ImageNet, in the order of their folders."""
    return tuple(
        Answered(folder, name.lower(), _places(ids.split()))
        for folder, name, ids in _table("objectnet")
    )


@cache
def categories() -> tuple[Answered, ...]:
    """The 16 categories of the cue-conflict pictures."""
    return tuple(Answered(name, name, _places(ids.split())) for name, ids in _table("categories"))


@cache
def answers(classes: tuple[str, ...]) -> tuple[tuple[int, ...], ...] | None:
    """For each class of a set of this family its places among the 1000; none for other data."""
    for known in (objectnet_classes(), categories()):
        if classes == tuple(each.name for each in known):
            return tuple(each.places for each in known)
    places = imagenet_places(classes)
    return None if places is None else tuple((place,) for place in places)


def averages(classes: tuple[str, ...]) -> bool:
    """Whether a class's outputs count by their mean probability: so do those of cue conflict."""
    return classes == tuple(each.name for each in categories())


def _places(wnids: Sequence[str]) -> tuple[int, ...]:
    known = wnid_places()
    return tuple(known[wnid] for wnid in wnids)


def _table(name: str) -> list[list[str]]:
    path = files("stockpot.datasets.natural") / "tables" / f"{name}.tsv"
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    if len({len(row) for row in rows}) != 1:
        raise BadDataError(f"the table {name} has rows of different length.")
    return rows
