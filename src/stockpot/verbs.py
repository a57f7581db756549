"""Rooms that are also verbs: `stockpot.fuse` is a package and `stockpot.fuse(...)` fuses.

The public functions carry the names of their rooms, and importing a room would otherwise replace
the function of the same name. A room that calls `speak` becomes a callable module; the function
it stands for is imported at the first call, so naming a room still costs nothing.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


class Verb(ModuleType):
    """A package that can be called."""

    __verb__: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module, _, name = self.__verb__.partition(":")
        return getattr(importlib.import_module(module), name)(*args, **kwargs)


def speak(room: str, function: str) -> None:
    """Make the room (its `__name__`) callable as `function` (`module:name`)."""
    module = sys.modules[room]
    module.__class__ = Verb
    module.__dict__["__verb__"] = function
