"""Which corruptions and severities of a stored set are measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from stockpot.corrupt import BENCHMARK
from stockpot.corrupt.ranges import chosen_corruptions
from stockpot.datasets.corrupted.families import Family, foreign_names
from stockpot.datasets.corrupted.stored import CorruptionSet
from stockpot.errors import BadParameterError
from stockpot.measure.mce import IMAGENET_C
from stockpot.types import Check


def stored_cells(
    stored: CorruptionSet, wanted: str | Iterable[str], levels: Sequence[float]
) -> tuple[list[tuple[str, float]], Family]:
    """The cells of a stored set that are asked for, and the benchmark that they belong to.

    `benchmark`, `extra` and `all` are those of the set. Where pictures of ImageNet-C lie beside
    others, the words mean ImageNet-C's; a set without severities has the one that is called 1.
    """
    usual = stored.graded and any(name in stored.places for name in BENCHMARK)
    family = IMAGENET_C if usual else stored.family or IMAGENET_C
    own = {
        "benchmark": family.corruptions,
        "extra": family.extra,
        "all": (*family.corruptions, *family.extra),
    }
    names: dict[str, None] = {}
    for word in _words(wanted):
        known = own.get(word) or ((word,) if word in stored.places else chosen_corruptions(word))
        names |= dict.fromkeys(known)
    severities = levels if stored.graded else (1,)
    return [(name, severity) for name in names for severity in severities], family


def _words(wanted: str | Iterable[str]) -> list[str]:
    words = wanted.split(",") if isinstance(wanted, str) else wanted
    return [str(word).strip() for word in words]


def _check(value: Any) -> Any:
    if not isinstance(value, str | list | tuple):
        raise BadParameterError(f"expected names of corruptions, got {value!r}.")
    known = foreign_names()
    others = [word for word in _words(value) if word not in known]
    if others or not value:
        chosen_corruptions(others)
    return value


StoredCorruptions = Annotated[str | tuple[str, ...], Check(_check)]
"""Corruptions as for `corrupt`, or those of a published set that is only read."""
