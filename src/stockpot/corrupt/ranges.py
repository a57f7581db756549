"""Which corruptions and severities a user means by `benchmark`, `1-5` or a list."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any

from stockpot.corrupt import BENCHMARK, EXTRA, GROUPS, SEVERITIES, corruptions
from stockpot.corrupt.between import plain
from stockpot.datasets.corrupted.families import FAMILIES, Family
from stockpot.errors import BadParameterError, UnknownNameError
from stockpot.types import Check

_RANGE = re.compile(r"(?P<first>\d+)-(?P<last>\d+)|(?P<one>\d+(\.\d+)?)")


def chosen_corruptions(wanted: str | Iterable[str]) -> tuple[str, ...]:
    """Names from `benchmark`, `extra`, `all`, a group such as `noise`, a family, or names."""
    words = wanted.split(",") if isinstance(wanted, str) else [str(word) for word in wanted]
    sets = {"benchmark": BENCHMARK, "extra": EXTRA, "all": (*BENCHMARK, *EXTRA), **GROUPS}
    if not all(word.strip() in sets for word in words):
        sets |= {each.name.lower(): each.corruptions for each in made_families()}
    found: dict[str, None] = {}
    for word in (word.strip() for word in words):
        if word not in sets and word not in corruptions:
            raise UnknownNameError(corruptions.noun, word, [*sets, *corruptions.names()])
        found |= dict.fromkeys(sets.get(word, (word,)))
    if not found:
        raise BadParameterError("corruptions: expected at least one.")
    return tuple(found)


def made_families() -> list[Family]:
    """The published sets beside ImageNet-C whose corruptions can be made here."""
    known = set(corruptions.names())
    return [each for each in FAMILIES if each.graded and set(each.corruptions) <= known]


def family_of_names(names: Iterable[str]) -> Family | None:
    """The set beside ImageNet-C that all of these belong to, over which a mean then runs."""
    wanted = set(names)
    if not any(wanted <= set(each.corruptions) for each in FAMILIES):
        return None  # nothing is asked of the registry
    return next((each for each in made_families() if wanted <= set(each.corruptions)), None)


def chosen_severities(wanted: str | float | Iterable[float]) -> tuple[int | float, ...]:
    """Severities from `1-5`, `1,2.5,5`, a number, or a list of numbers."""
    words = [str(wanted)] if isinstance(wanted, int | float) else wanted
    words = words.split(",") if isinstance(words, str) else [str(word) for word in words]
    found: set[int | float] = set()
    for word in words:
        match = _RANGE.fullmatch(word.strip())
        if match is None:
            raise BadParameterError(f"severities: expected such as 1-5 or 1,2.5, got {wanted!r}.")
        if match["last"]:
            first, last = int(match["first"]), int(match["last"])
            # What goes too far is refused below, however long the range would be.
            found |= set(range(first, min(last, SEVERITIES[-1] + 1) + 1))
        else:
            found.add(plain(float(match["one"])))
    if not found or not all(SEVERITIES[0] <= each <= SEVERITIES[-1] for each in found):
        raise BadParameterError(f"severities: expected numbers from 1 to 5, got {wanted!r}.")
    return tuple(sorted(found))


def _severities(value: Any) -> Any:
    many = isinstance(value, list | tuple | set)
    if isinstance(value, bool) or not (many or isinstance(value, str | int | float)):
        raise BadParameterError(f"expected numbers from 1 to 5, such as 1-5, got {value!r}.")
    levels = chosen_severities(value)
    return str(value) if isinstance(value, int | float) else value if not many else levels


def _severity(value: Any) -> Any:
    levels = chosen_severities(value) if isinstance(value, str | int) else ()
    if len(levels) != 1 or isinstance(value, bool) or not isinstance(levels[0], int):
        raise BadParameterError(f"expected a whole number from 1 to 5, got {value!r}.")
    return levels[0]


def _corruptions(value: Any) -> Any:
    if not isinstance(value, str | list | tuple):
        raise BadParameterError(f"expected names of corruptions, got {value!r}.")
    chosen_corruptions(value)
    return value


def _names(value: Any) -> Any:
    words = value.split(",") if isinstance(value, str) else value
    for word in words if isinstance(words, list | tuple) else [words]:
        if word not in corruptions:
            raise UnknownNameError(corruptions.noun, str(word), corruptions.names())
    return tuple(words)


Severities = Annotated[str | tuple[int | float, ...], Check(_severities)]
"""Severities: `1-5`, `1,2.5,5`, a number, or a list of numbers."""
Severity = Annotated[int, Check(_severity)]
"""One severity, 1 to 5."""
Corruptions = Annotated[str | tuple[str, ...], Check(_corruptions)]
"""Corruptions: `benchmark`, `extra`, `all`, a group such as `noise`, a family, or names."""
CorruptionNames = Annotated[tuple[str, ...], Check(_names)]
"""Corruptions, each by its own name."""
