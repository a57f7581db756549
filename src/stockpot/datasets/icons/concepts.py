"""The hand-picked table of classes: which concepts a class holds, by codepoint, never by name.

A concept is written as `codepoint name`. Concepts that look almost alike (a red and a green apple,
a man and a woman at the same work) stand in one list and always fall into one split.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import yaml

from stockpot.errors import BadDataError


class Concept(NamedTuple):
    """One thing that icons show."""

    codepoint: str
    name: str


Group = tuple[Concept, ...]
"""Concepts that must not be torn apart by a split."""


def read_table(name: str) -> Any:
    """One of the YAML tables beside this file."""
    text = (files("stockpot.datasets.icons") / f"{name}.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


@cache
def class_table() -> dict[str, tuple[Group, ...]]:
    """Class name -> groups of concepts, in the order of the table."""
    table: dict[str, tuple[Group, ...]] = {}
    seen: dict[str, str] = {}
    for label, entries in read_table("classes").items():
        groups = []
        for entry in entries:
            texts = entry if isinstance(entry, list) else [entry]
            group = tuple(Concept(*text.split(" ", 1)) for text in texts)
            for concept in group:
                if concept.codepoint in seen:
                    raise BadDataError(
                        f"icons: {concept.codepoint} is in {seen[concept.codepoint]!r} "
                        f"and in {label!r}."
                    )
                seen[concept.codepoint] = label
            groups.append(group)
        table[label] = tuple(groups)
    return table


def check_names(cldr: dict[str, str]) -> None:
    """Compare the table with Unicode's own names, so that no codepoint is mistyped."""
    for groups in class_table().values():
        for concept in (concept for group in groups for concept in group):
            if cldr.get(concept.codepoint) != concept.name:
                raise BadDataError(
                    f"icons: the class table calls {concept.codepoint} {concept.name!r}, "
                    f"CLDR calls it {cldr.get(concept.codepoint)!r}."
                )
