"""The parameters of methods: values that differ from tensor to tensor, and checks of shared ones.

One grammar in Python, in recipes and on the command line. In the place of a value may stand

    {"*attn*": 0.5, "*": 0.3}     values by groups of layers: a tensor's own name, or the first glob
    {depth: [0.1, 0.4, 0.3]}      spread over the depth of the network, interpolated between
    {members: [0.1, 0.4]}         one for each member, in order or by name: {members: {a: 0.1}}

and each may stand inside the one before it. Depth begins with the embeddings and the first block
and ends with the last block and the head. A plain list is short where it can mean one thing only:
members where the method takes a list (`weights`), depth where it takes a number that is the same
for all members. A number that may differ between members (`density`, and `scale` beside weights)
refuses it. Methods know nothing of this: each gets plain values for its tensors.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from stockpot.checkpoints.layouts import plain_name
from stockpot.errors import BadParameterError
from stockpot.foreign import YamlError, read_value
from stockpot.fuse import FuserTags
from stockpot.fuse.per_member import DEPTH, MEMBERS, by_member, is_by, refuse_plain_list
from stockpot.registry import Entry

_FIRST = re.compile(
    r"embed|patch|stem|cls_token|class_|pos_|position|pre_|ln_pre|conv1|bn1|conv_in"
)


class Assignment(NamedTuple):
    """The distinct sets of parameters, and which set each tensor has."""

    distinct: tuple[dict[str, Any], ...]
    of: dict[str, int]


def assign(
    entry: Entry[Any],
    params: Mapping[str, Any],
    names: Sequence[str],
    members: Sequence[str] = (),
) -> Assignment:
    """Work out every tensor's parameters; they are validated here, before any work.

    Args:
        entry: the method.
        params: its parameters as they were given.
        names: the tensors.
        members: what the members are called, where they are known.
    """
    given = {key: _from_text(value) for key, value in params.items()}
    numbers = _numbers(entry)
    varying = _varying(numbers, given)
    fixed = {key: value for key, value in given.items() if key not in varying}
    if not varying:
        return Assignment((entry.validate(fixed),), dict.fromkeys(names, 0))
    for key in varying.keys() & numbers:
        refuse_plain_list(entry, key, varying[key])
    depth = depths(names)
    sets: dict[str, int] = {}
    distinct: list[dict[str, Any]] = []
    of = {}
    for name in names:
        values = dict(fixed)
        for key, schedule in varying.items():
            value = _value(schedule, name, depth[name], key in numbers)
            if value is not None:
                values[key] = value
        values = by_member(entry, values, members)
        mark = json.dumps(values, sort_keys=True, default=str)
        if mark not in sets:
            sets[mark] = len(distinct)
            distinct.append(entry.validate(values))
        of[name] = sets[mark]
    return Assignment(tuple(distinct), of)


def _numbers(entry: Entry[Any]) -> set[str]:
    defaults = inspect.signature(entry.function).parameters.values()
    return {
        row.name
        for row in defaults
        if isinstance(row.default, int | float)
        and not isinstance(row.default, bool)
        and row.name != "seed"  # one for a whole fusion
    }


def _varying(numbers: set[str], params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that differ from tensor to tensor."""
    given = {key: _from_text(value) for key, value in params.items()}
    return {
        key: value
        for key, value in given.items()
        if (isinstance(value, Mapping) and key != "seed")
        or (key in numbers and isinstance(value, list))
        or (isinstance(value, list) and any(isinstance(item, list | Mapping) for item in value))
    }


def check_parameters(entry: Entry[Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters, defaults included, those that vary by tensor as they were given.

    Raises for values that cannot be; no checkpoint is needed.
    """
    globs = [
        str(glob)
        for value in map(_from_text, params.values())
        if isinstance(value, Mapping)
        for glob in value
    ]
    names = [glob.replace("*", "layers.0").replace("?", "a") for glob in globs]
    sets = assign(entry, params, names or ["layers.0.a", "layers.1.a"]).distinct
    for values in sets:
        entry.function(**values)
    return sets[0] | {key: _from_text(params[key]) for key in _varying(_numbers(entry), params)}


def check_members(entry: Entry[FuserTags], count: int, with_base: bool) -> None:
    """Whether a method can fuse so many members, with or without a base."""
    tags, name = entry.tags, entry.name
    models = count + (with_base and tags.pair)
    if tags.members is not None and models != tags.members:
        also = " (a base counts as the first)" if tags.pair else ""
        raise BadParameterError(
            f"{name}: expected exactly {tags.members} models{also}, got {models}."
        )
    if count < tags.at_least:
        raise BadParameterError(f"{name}: expected at least {tags.at_least} models, got {count}.")
    if tags.needs_base and not with_base:
        raise BadParameterError(
            f"{name}: needs a base: the model that its members were fine-tuned from.",
            hint="Give it as base (--base).",
        )
    if tags.apart and with_base:
        raise BadParameterError(
            f"{name}: its members were trained apart; leave out the base, or name it as a member."
        )


def _from_text(value: Any) -> Any:
    if isinstance(value, str) and value.strip()[:1] in ("[", "{"):
        try:
            return read_value(value)
        except YamlError:
            raise BadParameterError(f"expected a YAML list or mapping, got {value!r}.") from None
    return list(value) if isinstance(value, tuple) else value


def _value(schedule: Any, name: str, depth: float, number: bool) -> Any:
    if is_by(MEMBERS, schedule):
        inner = schedule[MEMBERS]
        if isinstance(inner, Mapping):
            each: Any = {key: _value(one, name, depth, True) for key, one in inner.items()}
        else:
            each = [_value(one, name, depth, True) for one in _as_list(inner)]
        return {MEMBERS: each}
    if is_by(DEPTH, schedule):
        return interpolate(_as_list(schedule[DEPTH]), depth)
    if isinstance(schedule, Mapping):
        if name in schedule:
            return _value(schedule[name], name, depth, number)
        plain = plain_name(name)
        for glob, value in schedule.items():
            if fnmatchcase(name, str(glob)) or fnmatchcase(plain, str(glob)):
                return _value(value, name, depth, number)
        return None
    if isinstance(schedule, list):
        if number:
            return interpolate(schedule, depth)
        return [_value(item, name, depth, True) for item in schedule]
    return schedule


def _as_list(given: Any) -> list[Any]:
    if not isinstance(given, list | tuple):
        raise BadParameterError(f"expected a list for members or depth, got {given!r}.")
    return list(given)


def interpolate(values: Sequence[float], depth: float) -> float:
    """The value at a depth from 0 to 1 on the line through equally spaced values."""
    if not values:
        raise BadParameterError("expected at least one number for a gradient over depth, got [].")
    if not all(isinstance(value, int | float) for value in values):
        raise BadParameterError(f"expected numbers for a gradient over depth, got {values!r}.")
    position = depth * (len(values) - 1)
    low = min(int(position), len(values) - 1)
    high = min(low + 1, len(values) - 1)
    share = position - low
    return (1 - share) * float(values[low]) + share * float(values[high])


def depths(names: Sequence[str]) -> dict[str, float]:
    """How deep in the network each tensor lies, from 0 to 1.

    The blocks are the numbered parts of the names, in natural order. What has no number is at
    the beginning when it is an embedding or a stem, else at the end.
    """
    blocks = {name: _block(name) for name in names}
    order = sorted({block for block in blocks.values() if block is not None})
    last = len(order) - 1
    place = {block: index / last if last else 1.0 for index, block in enumerate(order)}
    found = {}
    for name, block in blocks.items():
        if block is None:
            found[name] = 0.0 if at_the_start(name) else 1.0
        else:
            found[name] = place[block]
    return found


def at_the_start(name: str) -> bool:
    """Whether a tensor outside of the blocks lies before them: an embedding or a stem."""
    return bool(_FIRST.search(plain_name(name)))


def _block(name: str) -> tuple[tuple[str, int], ...] | None:
    parts = plain_name(name).split(".")
    marks = []
    for part in parts:
        match = re.fullmatch(r"(\D*)(\d+)", part)
        if match and (not match[1] or match[1] in ("layer", "block", "stage")):
            marks.append((match[1], int(match[2])))
    # `classifier.1` and the like number the layers of a head, not the depth of the network.
    return tuple(marks) if marks and not parts[0].startswith(("classifier", "head")) else None


def check_share(name: str, value: float) -> None:
    """Raise unless a number lies in [0, 1]."""
    if not 0 <= value <= 1:
        raise BadParameterError(f"{name}: expected a share from 0 to 1, got {value}.")


def check_positive(name: str, value: float) -> None:
    """Raise unless a number is above zero."""
    if not value > 0:
        raise BadParameterError(f"{name}: expected a number above 0, got {value}.")


def one_each(name: str, values: list[float] | None, value: float) -> Callable[[int], float]:
    """A number for each member by its place: its own where such are given, else the common one."""
    for one in [value] if values is None else values:
        check_share(name, one)
    return lambda member: value if values is None else values[member]


def normalized(weights: list[float] | None, normalize: bool) -> list[float] | None:
    """The weights, divided by their sum when that is wished."""
    if weights is None or not normalize:
        return weights
    total = sum(weights)
    if abs(total) < 1e-12:
        raise BadParameterError(
            f"weights: they add up to 0 and cannot be normalised, got {weights}.",
            hint="Set normalize=false to use them as they are.",
        )
    return [weight / total for weight in weights]
