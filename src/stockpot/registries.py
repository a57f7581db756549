"""The registries by the name of their kind, as `stockpot list` knows them."""

from __future__ import annotations

import importlib
from typing import Any

from stockpot.errors import UnknownNameError
from stockpot.listings import Listing
from stockpot.registry import Registry

_ROOMS = {
    "fusers": "fuse",
    "finishers": "fuse.finish",
    "hardeners": "harden",
    "seasoners": "season",
    "attacks": "attack",
    "corruptions": "corrupt",
    "defences": "defend",
    "datasets": "datasets",
    "measures": "measure",
    "generators": "dynamic.generators",
    "oracles": "dynamic.oracles",
    "engines": "engine",
    "sinks": "results.sinks",
}
KINDS = tuple(_ROOMS)


def registry(kind: str) -> Registry[Any, Any, Any]:
    """The registry of a kind; imports its room's `__init__` only, which needs no torch."""
    if kind not in _ROOMS:
        raise UnknownNameError("kind", kind, _ROOMS)
    found: Registry[Any, Any, Any] = getattr(
        importlib.import_module(f"stockpot.{_ROOMS[kind]}"), kind
    )
    return found


def listings(kind: str) -> list[Listing]:
    """Everything of a kind: name, summary, module, paper."""
    return registry(kind).listings()


def names(kind: str) -> list[str]:
    """The names of everything of a kind, such as `fusers`, `measures` or `datasets`."""
    return registry(kind).names()
