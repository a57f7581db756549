"""Which pictures are held out: by style, by version, or by subtype (arXiv:1807.01697).

A protocol is decided on the columns of the pictures alone. In each of them every class keeps
training pictures. What is held out is on one side only: a family in `style`, an edition in
`version`, a concept together with its look-alikes in `subtype`.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.holdouts.columns import (
    CONCEPT,
    LOOK_ALIKES,
    OWNER,
    STYLE,
    VERSION,
    check_values,
    class_names,
    column,
    listed,
)
from stockpot.datasets.holdouts.superclasses import ORDER, PUBLISHED
from stockpot.errors import BadDataError, BadParameterError, UnknownNameError

Protocol = Literal["style", "subtype", "version"]
PROTOCOLS: tuple[str, ...] = get_args(Protocol)
SUBTYPES = 50
"""So many concepts are held out where nothing else is said, as published for Icons-50."""


@dataclass(frozen=True)
class HoldOut:
    """A protocol, and what it holds out."""

    protocol: str
    values: tuple[str, ...] = ()
    """By name; drawn or counted where there are none."""
    count: int | None = None
    """So many concepts, drawn by the seed."""
    each: int | None = None
    """So many concepts of each class, the first ones of a published list or of the data."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise UnknownNameError("protocol", self.protocol, PROTOCOLS)
        if self.protocol != "subtype" and self.each is not None:
            raise BadParameterError(
                f"hold_out_each: protocol {self.protocol} holds out names, not a number of them."
            )
        for key, number in (("hold_out", self.count), ("hold_out_each", self.each)):
            if number is not None and (not isinstance(number, int) or number < 1):
                raise BadParameterError(f"{key}: expected at least 1 concept, got {number!r}.")

    def __str__(self) -> str:
        if self.values:
            return f"{self.protocol} {','.join(self.values)}"
        if self.each is not None:
            return f"{self.protocol} {self.each} each"
        if self.count is None:
            return f"{self.protocol}, seed {self.seed}"
        return f"{self.protocol} {self.count}, seed {self.seed}"


def held_out_rows(data: Dataset, asked: HoldOut) -> tuple[list[int], list[int]]:
    """The rows to train on, and the rows that are held out."""
    if asked.protocol == "style":
        train, test = _by_style(data, asked.values)
    elif asked.protocol == "version":
        train, test = _by_version(data, asked.values)
    else:
        train, test = _by_subtype(data, asked)
    labels = class_names(data)
    bare = sorted({labels[row] for row in (*train, *test)} - {labels[row] for row in train})
    if bare:
        raise BadDataError(
            f"{data.name}: holding out {asked} leaves no training picture of {', '.join(bare)}.",
            hint="Hold out less, or leave these classes out with classes=.",
        )
    if not test:
        raise BadDataError(f"{data.name}: holding out {asked} leaves nothing to test.")
    return train, test


def _by_style(data: Dataset, held: Sequence[str]) -> tuple[list[int], list[int]]:
    styles = column(data, STYLE, "protocol style")
    return _split(data, "style", held, styles, _concepts(data))


def _by_version(data: Dataset, held: Sequence[str]) -> tuple[list[int], list[int]]:
    versions = column(data, VERSION, "protocol version")
    owners = column(data, OWNER, "protocol version")
    same = list(zip(_concepts(data), owners, strict=True))
    # Another edition of the same thing by the same hand must have been trained on.
    return _split(data, "version", held, versions, same)


def _split(
    data: Dataset,
    protocol: str,
    held: Sequence[str],
    values: Sequence[str],
    things: Sequence[object],
) -> tuple[list[int], list[int]]:
    """Rows of other values, and rows of held-out values whose thing is among the former too."""
    if not held:
        there = ", ".join(dict.fromkeys(values))
        raise BadParameterError(f"protocol {protocol}: hold_out is needed. There are {there}.")
    check_values(data, "hold_out", held, values)
    train = [row for row, value in enumerate(values) if value not in held]
    seen = {things[row] for row in train}
    test = [row for row, value in enumerate(values) if value in held and things[row] in seen]
    return train, test


def _by_subtype(data: Dataset, asked: HoldOut) -> tuple[list[int], list[int]]:
    concepts = column(data, CONCEPT, "protocol subtype")
    labels = class_names(data)
    held = set(_chosen(data, asked, concepts, labels))
    train = [row for row, concept in enumerate(concepts) if concept not in held]
    return train, [row for row, concept in enumerate(concepts) if concept in held]


def _chosen(
    data: Dataset, asked: HoldOut, concepts: Sequence[str], labels: Sequence[str]
) -> tuple[str, ...]:
    if asked.values:
        check_values(data, "hold_out", asked.values, concepts)
        return asked.values
    groups = _groups(data, concepts)
    classes: Mapping[str, set[str]] = defaultdict(set)
    for concept, label in zip(concepts, labels, strict=True):
        classes[groups[concept]].add(label)
    members: Mapping[str, list[str]] = defaultdict(list)
    for concept in dict.fromkeys(concepts):
        members[groups[concept]].append(concept)
    if asked.each is not None:
        return _first_of_each(data, asked.each, members, classes)
    if asked.count is None and PUBLISHED in data.columns:
        listed_so = zip(concepts, data.columns[PUBLISHED], strict=True)
        return tuple(dict.fromkeys(concept for concept, use in listed_so if use == "unseen"))
    count = asked.count or SUBTYPES

    def draw(group: str) -> str:
        return hashlib.sha256(f"{asked.seed}:{group}".encode()).hexdigest()

    left: dict[str, int] = defaultdict(int)
    for found in classes.values():
        for label in found:
            left[label] += 1
    held: list[str] = []
    for group in sorted(members, key=draw):
        fits = len(held) + len(members[group]) <= count
        if fits and all(left[label] > 1 for label in classes[group]):
            held += members[group]
            for label in classes[group]:
                left[label] -= 1
    if len(held) < count:
        raise BadParameterError(
            f"hold_out: {count} concepts of {data.name} cannot be held out so that every class "
            f"keeps some; {len(held)} can."
        )
    return tuple(held)


def _first_of_each(
    data: Dataset,
    each: int,
    members: Mapping[str, Sequence[str]],
    classes: Mapping[str, set[str]],
) -> tuple[str, ...]:
    held: list[str] = []
    concepts = column(data, CONCEPT, "hold_out_each")
    places = dict(zip(concepts, map(int, data.columns.get(ORDER, ("0",) * len(data))), strict=True))
    members = dict(sorted(members.items(), key=lambda group: places[group[1][0]]))
    for label in dict.fromkeys(data.classes):
        own = [group for group in members if label in classes[group]]
        if own and len(own) <= each:
            raise BadParameterError(
                f"hold_out_each: {label!r} has {len(own)} concepts, of which {each} cannot be "
                "held out."
            )
        held += [concept for group in own[:each] for concept in members[group]]
    return tuple(dict.fromkeys(held))


def _groups(data: Dataset, concepts: Sequence[str]) -> dict[str, str]:
    """Concept -> the group that must not be torn apart."""
    return dict(zip(concepts, data.columns.get(LOOK_ALIKES, tuple(concepts)), strict=True))


def _concepts(data: Dataset) -> tuple[str, ...]:
    """What each picture shows; its class where nothing closer is known."""
    for name in CONCEPT:
        if name in data.columns:
            return data.columns[name]
    return class_names(data)


def holding_out(
    protocol: str,
    hold_out: str | int | Sequence[str] | None = None,
    hold_out_each: int | None = None,
    hold_out_seed: int = 0,
) -> HoldOut:
    """A protocol as options say it: names, or a number of concepts."""
    # Editions may be called by numbers; of concepts a number says how many.
    number = hold_out if isinstance(hold_out, int) and protocol == "subtype" else None
    values = () if hold_out is None or number is not None else listed(hold_out)
    if (hold_out is not None) and hold_out_each is not None:
        raise BadParameterError("give hold_out or hold_out_each, not both.")
    return HoldOut(protocol, values, number, hold_out_each, hold_out_seed)


def leave_one_out(data: Dataset, protocol: Protocol = "style") -> list[HoldOut]:
    """One hold-out for each designer (or edition), for a mean and a spread over all of them.

    A designer's families are held out together: where one of them is trained on, the other is a
    new edition and not a new style. Those without which a class would have no training picture are
    left out, and so are editions whose designer has no other.
    """
    values = column(data, STYLE if protocol == "style" else VERSION, f"protocol {protocol}")
    owners = column(data, OWNER, f"protocol {protocol}") if protocol == "style" else values
    together: dict[str, dict[str, None]] = defaultdict(dict)
    for owner, value in zip(owners, values, strict=True):
        together[owner][value] = None
    found = []
    for held in together.values():
        asked = HoldOut(protocol, tuple(held))
        try:
            held_out_rows(data, asked)
        except BadDataError:
            continue
        found.append(asked)
    return found
