"""A fusion as another program describes it: what the readers of foreign recipes give."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ForeignRecipe:
    """A fusion as another program describes it, in the words of `stockpot.fuse`."""

    members: dict[str, Any]
    """Name -> where it lies, or an opened checkpoint where it lies in no files of its own."""
    base: Any | None = None
    method: str | None = None
    params: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    replaceable: bool = False
    """Whether another method may be named for its models."""
