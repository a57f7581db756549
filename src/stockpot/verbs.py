"""Rooms that are also verbs: `stockpot.fuse` is a package and `stockpot.fuse(...)` fuses.

The public functions carry the names of their rooms, and importing a room would otherwise replace
the function of the same name. A room that calls `speak` becomes a callable module. The function
it stands for is imported when it is called or asked about (`help`, `inspect.signature`, tab
completion), so naming a room still costs nothing.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


class Verb(ModuleType):
    """A package that can be called."""

    __verb__: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _function(self)(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, (self.__name__,)  # a module is the same one everywhere

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(_function(self))


def _explained(room: Verb) -> str:
    """The function's docstring, its call after the first line: `help` shows no signature itself."""
    function = _function(room)
    first, _, rest = (inspect.getdoc(function) or "").partition("\n")
    return f"{first}\n\n{_call(room.__name__, inspect.signature(function))}\n{rest.rstrip()}\n"


# A data descriptor of the class wins over the module's own docstring. It is set after the class is
# made, because a `__doc__` in a class body is the class's docstring.
Verb.__doc__ = property(_explained)  # type: ignore[assignment]


def speak(room: str, function: str) -> None:
    """Make the room (its `__name__`) callable as `function` (`module:name`)."""
    module = sys.modules[room]
    module.__class__ = Verb
    module.__dict__["__verb__"] = function


def _function(room: Verb) -> Callable[..., Any]:
    module, _, name = room.__verb__.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function


def _call(name: str, signature: inspect.Signature) -> str:
    """A call as one would write it, one parameter to a line once it is too long for one."""
    parts: list[str] = []
    for parameter in signature.parameters.values():
        first = not any(part.startswith("*") for part in parts)
        if parameter.kind is parameter.KEYWORD_ONLY and first:
            parts.append("*")
        parts.append(_written(parameter))
    back = signature.return_annotation
    answer = "" if back is signature.empty else f" -> {_type(back)}"
    whole = f"{name}({', '.join(parts)}){answer}"
    if len(whole) <= 76:
        return whole
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){answer}"])


def _written(parameter: inspect.Parameter) -> str:
    many, keyed = parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD
    stars = "*" if parameter.kind is many else "**" if parameter.kind is keyed else ""
    typed = "" if parameter.annotation is parameter.empty else f": {_type(parameter.annotation)}"
    default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
    return f"{stars}{parameter.name}{typed}{default}"


def _type(annotation: Any) -> str:
    # Postponed annotations are texts, which `help` would print in quotes.
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
