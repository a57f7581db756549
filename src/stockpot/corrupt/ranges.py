"""Which corruptions and severities a user means by `benchmark`, `1-5` or a list."""

from __future__ import annotations

from collections.abc import Iterable

from stockpot.corrupt import BENCHMARK, EXTRA, GROUPS, SEVERITIES, corruptions
from stockpot.errors import BadParameterError


def chosen_corruptions(wanted: str | Iterable[str]) -> tuple[str, ...]:
    """Names from `benchmark`, `extra`, `all`, a group such as `noise`, or names by comma."""
    words = wanted.split(",") if isinstance(wanted, str) else list(wanted)
    sets = {"benchmark": BENCHMARK, "extra": EXTRA, "all": (*BENCHMARK, *EXTRA), **GROUPS}
    found: dict[str, None] = {}
    for word in (word.strip() for word in words):
        for name in sets.get(word) or (corruptions.get(word).name,):
            found[name] = None
    if not found:
        raise BadParameterError("corruptions: expected at least one.")
    return tuple(found)


def chosen_severities(wanted: str | int | Iterable[int]) -> tuple[int, ...]:
    """Severities from `1-5`, `1,3,5`, a number, or a list of numbers."""
    words = [str(wanted)] if isinstance(wanted, int) else wanted
    words = words.split(",") if isinstance(words, str) else [str(word) for word in words]
    found: set[int] = set()
    for word in words:
        first, _, last = word.strip().partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            raise BadParameterError(f"severities: expected such as 1-5 or 1,3,5, got {wanted!r}.")
        found |= set(range(int(first), int(last or first) + 1))
    if not found or not found <= set(SEVERITIES):
        raise BadParameterError(f"severities: expected numbers from 1 to 5, got {wanted!r}.")
    return tuple(sorted(found))
