"""Parameters that differ from member to member: `{members: [0.1, 0.4]}` or `{members: {a: 0.1}}`.

Methods take lists under names of their own (`densities` for `density`), or weights; here one way of
writing becomes theirs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from stockpot.errors import BadParameterError
from stockpot.registry import Entry

MEMBERS, DEPTH = "members", "depth"
_LISTS = {"density": "densities", "gamma": "gammas", "epsilon": "epsilons", "weights": "weights"}


def is_by(word: str, value: Any) -> bool:
    """Whether a value is a mapping of this one word."""
    return isinstance(value, Mapping) and set(value) == {word}


def by_member(
    entry: Entry[Any], values: Mapping[str, Any], members: Sequence[str]
) -> dict[str, Any]:
    """Parameters as the method takes them.

    Args:
        entry: the method.
        values: its parameters; some may be mappings of the word `members`.
        members: what the members are called; none where they are not known yet.
    """
    found = {key: value for key, value in values.items() if not is_by(MEMBERS, value)}
    takes = set(entry.schema.model_fields)
    for key, value in values.items():
        if not is_by(MEMBERS, value):
            continue
        each = _in_order(key, value[MEMBERS], members)
        own = _LISTS.get(key)
        if own in takes:
            found[str(own)] = each
        elif key == "scale" and "weights" in takes:
            found |= _scales(key, each, found.get("weights") or _later(values, members))
        else:
            able = [name for name in (*_LISTS, "scale") if _can(name, takes)]
            raise BadParameterError(
                f"{entry.name}: {key} cannot differ between members.",
                hint=f"These can: {', '.join(able)}." if able else "None of its parameters can.",
            )
    return found


def refuse_plain_list(entry: Entry[Any], key: str, value: Any) -> None:
    """Refuse a list of a number that may differ both between members and over the depth.

    Inside `members` or `depth` it says what it is; inside globs it does not.
    """
    said = is_by(MEMBERS, value) or is_by(DEPTH, value)
    if said or not _can(key, set(entry.schema.model_fields)):
        return
    if isinstance(value, Mapping):
        for inner in value.values():
            refuse_plain_list(entry, key, inner)
    elif isinstance(value, list | tuple):
        shown = json.dumps(list(value))
        raise BadParameterError(
            f"{entry.name}: {key}: a plain list may mean members or depth, got {shown}.",
            hint=f"Write {{{MEMBERS}: {shown}}} or {{{DEPTH}: {shown}}}.",
        )


def _can(name: str, takes: set[str]) -> bool:
    return (name in takes and _LISTS.get(name) in takes) or (
        name == "scale" and {"scale", "weights"} <= takes
    )


def _later(values: Mapping[str, Any], members: Sequence[str]) -> list[Any] | None:
    """Weights that are written by member too."""
    given: Any = values.get("weights")
    return _in_order("weights", given[MEMBERS], members) if is_by(MEMBERS, given) else None


def _in_order(key: str, given: Any, members: Sequence[str]) -> list[Any]:
    if not isinstance(given, Mapping):
        if not isinstance(given, list | tuple) or (members and len(given) != len(members)):
            raise BadParameterError(
                f"{key}: expected one per member ({len(members)}) in a list or by their names, got "
                f"{given!r}."
            )
        return list(given)
    strange = [name for name in given if members and name not in members]
    if strange or (members and len(given) != len(members)):
        raise BadParameterError(
            f"{key}: expected a value for each of {', '.join(members)}, got "
            f"{', '.join(map(str, given))}."
        )
    return [given[name] for name in members] if members else list(given.values())


def _scales(key: str, each: Sequence[Any], weights: Sequence[float] | None) -> dict[str, Any]:
    """A scale for each as one scale and weights: equal ones are one scale and nothing else.

    The mean is the scale, so that methods that divide by the sum of the weights keep it.
    """
    try:
        numbers = [float(value) for value in each]
    except (TypeError, ValueError):
        raise BadParameterError(f"{key}: expected numbers for members, got {each!r}.") from None
    if len(set(numbers)) == 1:
        return {"scale": numbers[0]}
    scale = sum(numbers) / len(numbers) or 1.0
    own = [float(weight) for weight in weights] if weights else [1.0] * len(numbers)
    return {
        "scale": scale,
        "weights": [w * number / scale for w, number in zip(own, numbers, strict=True)],
    }
