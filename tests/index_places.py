"""An empty place for an index, and a way to ask it past our own code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Place(NamedTuple):
    url: str
    ask: Callable[[str], list[tuple[Any, ...]]]
    """Any SQL, by the database's own driver."""
