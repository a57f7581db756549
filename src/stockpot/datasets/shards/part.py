"""One of n parts of data, such that all of them together are the whole and no two share a picture.

Which pictures a part holds follows from the data and from i/n alone, never from who reads it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from stockpot.errors import BadParameterError

T = TypeVar("T")


@dataclass(frozen=True)
class Part:
    """Part `index` of `count`, counted from 0."""

    index: int = 0
    count: int = 1

    def of(self, things: Sequence[T]) -> Sequence[T]:
        """Every `count`th of a list, from `index` on."""
        return things[self.index :: self.count]

    def by_files(self, files: int) -> bool:
        """Whether a part is made of whole files: there is at least one for each part.

        Otherwise each part takes every `count`th sample of all files.
        """
        return files >= self.count

    @property
    def is_whole(self) -> bool:
        """Whether there is no other part."""
        return self.count == 1

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def read_part(text: str | None) -> Part:
    """The part that a text such as `0/4` means; all where there is none."""
    if text is None:
        return Part()
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text.strip())
    if found is None or not int(found[1]) < int(found[2]):
        raise BadParameterError(
            f"shard: expected i/n with i from 0 to n - 1, such as 0/4, got {text!r}."
        )
    return Part(int(found[1]), int(found[2]))


def check_classes_known(part: Part, stated: bool, place: str) -> None:
    """Raise where the classes would be read off one part: another might number them otherwise."""
    if not part.is_whole and not stated:
        raise BadParameterError(
            f"{place}: shard={part} without classes: each part would number those that it holds.",
            hint="Give classes=, the names in order, a file of them, or how many there are.",
        )
