"""What the parameters of a method name, those of its generator and oracle included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stockpot.dynamic.generators import generators
from stockpot.dynamic.oracles import oracles
from stockpot.registry import Entry, Registry

_NESTED: Mapping[str, Registry[Any, Any, Any]] = {"generator": generators, "oracle": oracles}
"""What takes parameters of its own, given as `NAME_params`."""


def all_references(entry: Entry[Any], params: Mapping[str, Any]) -> dict[str, str]:
    """Parameter -> what it names; one of a generator or oracle is `NAME_params.parameter`.

    Of several oracles in a list each has its number in between: `oracle_params.members.0.model`.
    """
    found: dict[str, str] = dict(entry.references)
    defaults = {each.name: each.default for each in entry.parameters}
    for name, kind in tuple(found.items()):
        chosen = str(params.get(name, defaults[name]))
        if kind in _NESTED and chosen in _NESTED[kind]:
            inner = _NESTED[kind].get(chosen)
            own = params.get(f"{name}_params")
            nested = all_references(inner, own if isinstance(own, Mapping) else {})
            found |= {f"{name}_params.{key}": what for key, what in nested.items()}
        elif kind == "oracles":
            found |= _of_members(name, params.get(name))
    return found


def _of_members(name: str, members: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for index, member in enumerate(members if isinstance(members, list | tuple) else ()):
        # Of what is no oracle with its parameters, whoever makes the oracle will tell.
        chosen = str(member.get("oracle")) if isinstance(member, Mapping) else ""
        if chosen in oracles:
            inner = all_references(oracles.get(chosen), member)
            found |= {f"{name}.{index}.{key}": what for key, what in inner.items()}
    return found
