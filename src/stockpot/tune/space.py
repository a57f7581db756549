"""What a search may vary: ranges and choices, written as text, derived from a method's signature.

    density=0.1:0.9          a number between the two
    lr=1e-6:1e-3:log         the same, equal factors equally likely
    steps=10:100             a whole number, because both ends are
    reduce=mean,sum          one of these
    weights=0:1              one number for each member, because the method takes one each
    density={members: 0:1}   one number for each member
    scale={depth: [0:1, 0:1]}         two numbers, interpolated over the depth of the network
    scale={"*attn*": 0:1, "*": 0:1}   one number for each group of layers

Where a value may stand, the grammar is that of values (`fuse/parameters.py`); a range or a choice
stands where a value would.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml

from stockpot.errors import BadParameterError, did_you_mean
from stockpot.fuse.per_member import DEPTH, MEMBERS, is_by
from stockpot.registry import Entry


@dataclass(frozen=True)
class Range:
    """A number between two, both included."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __str__(self) -> str:
        return f"{_short(self.low)}:{_short(self.high)}{':log' if self.log else ''}"

    def points(self, count: int) -> list[float]:
        """So many numbers from end to end, for a grid."""
        if count == 1 or self.low == self.high:
            return [self.low]
        shares = [index / (count - 1) for index in range(count)]
        if self.log:
            found = [self.low * (self.high / self.low) ** share for share in shares]
        else:
            found = [self.low + (self.high - self.low) * share for share in shares]
        rounded = [round(value) if self.whole else to_digits(value) for value in found]
        return list(dict.fromkeys(rounded))


@dataclass(frozen=True)
class Choice:
    """One of several values."""

    options: tuple[str | int | float | bool | None, ...]

    def __str__(self) -> str:
        return ",".join(map(str, self.options))


Knob = Range | Choice


def to_digits(value: float) -> float:
    """Four digits are enough for a knob, and make a command that one can read and type."""
    return float(f"{value:.4g}")


_MEANT = {
    "scale": Range(0.05, 2.0, log=True),
    "density": Range(0.02, 1.0),
    "keep": Range(0.02, 1.0),
    "gamma": Range(0.0, 0.1),
    "drop": Range(0.0, 0.95),
    "epsilon": Range(0.0, 0.3),
    "t": Range(0.0, 1.0),
    "alpha": Range(0.0, 1.0),
    "off_diagonal": Range(0.0, 1.0),
    "weights": Range(0.0, 1.0),
}
"""Parameters that mean the same in every method, and where good values lie."""
_NOT_SEARCHED = {
    "seed", "steps", "epochs", "batch_size", "together", "examples", "tol", "parallel",
    "rank_tolerance", "adapt_steps", "surgery_steps", "targets", "skip", "densities", "gammas",
    "epsilons", "weights", "normalize", "depth", "chunk",
}  # fmt: skip
"""What costs time, or makes rounding: only searched when a range is given."""


def derived(entry: Entry[Any], fixed: Sequence[str] = ()) -> dict[str, Any]:
    """The knobs of a method by its signature: types, bounds, defaults, and what names mean."""
    found: dict[str, Any] = {}
    for row in entry.parameters:
        name = row.name
        needed = row.required
        if name in fixed or name == "preset" or (name in _NOT_SEARCHED and not needed):
            continue
        knob = _knob(name, entry.schema.model_fields[name].annotation, row.default,
                     entry.schema.model_fields[name].metadata)  # fmt: skip
        if knob is not None:
            found[name] = knob
        elif needed:
            raise BadParameterError(
                f"{entry.name}: {name} is needed and no range follows from its type.",
                hint=f"Give one: --space {name}=LOW:HIGH.",
            )
    return found


def _knob(name: str, hint: Any, default: Any, marks: Sequence[Any] = ()) -> Knob | None:
    """A range or a choice from a type and a default."""
    while get_origin(hint) is Annotated:
        hint, *more = get_args(hint)
        marks = [*marks, *more]
    if get_origin(hint) in (Union, UnionType):
        parts = [part for part in get_args(hint) if part is not NoneType]
        return _knob(name, parts[0], default, marks) if len(parts) == 1 else None
    if get_origin(hint) is Literal:
        return Choice(get_args(hint)) if len(get_args(hint)) > 1 else None
    if hint is bool:
        return Choice((False, True))
    if name in _MEANT and (hint is float or get_origin(hint) is list):
        meant = _MEANT[name]
        if name == "scale" and isinstance(default, float) and 0 < default < 0.1:
            meant = Range(to_digits(default / 10), to_digits(default * 10), log=True)
        return meant
    if hint in (int, float) and isinstance(default, int | float):
        return _around(float(default), *_bounds(marks), whole=hint is int)
    return None


def _bounds(marks: Sequence[Any]) -> tuple[float, float]:
    low, high = -math.inf, math.inf
    for mark in marks:
        for part in (mark, *getattr(mark, "metadata", ())):
            for key in ("ge", "gt"):
                low = max(low, _number(getattr(part, key, None), low))
            for key in ("le", "lt"):
                high = min(high, _number(getattr(part, key, None), high))
    return low, high


def _number(value: Any, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) else otherwise


def _around(default: float, low: float, high: float, *, whole: bool) -> Range:
    """Bounds where a type has both, else from a fifth of the default to five times of it."""
    if low > -math.inf and high < 1e6:
        return Range(low, high, whole=whole)
    if default == 0:
        return Range(max(low, -1.0), min(high, 1.0), whole=whole)
    ends = sorted((default / 5, default * 5))
    first, last = max(low, ends[0]), min(high, ends[1])
    if whole:
        first, last = max(1.0, math.floor(first)), math.ceil(last)
    return Range(to_digits(first), to_digits(last), log=first > 0, whole=whole)


def read_space(given: Mapping[str, Any], names: Sequence[str], method: str) -> dict[str, Any]:
    """A space as a user writes it: names of parameters, with trees of ranges and choices."""
    found = {}
    for key, value in given.items():
        if key not in names:
            raise BadParameterError(
                f"space: {method} has no parameter {key!r}.{did_you_mean(key, names)}",
                hint=f"It takes: {', '.join(names)}.",
            )
        found[key] = read_node(value, key)
    return found


def read_node(value: Any, where: str) -> Any:
    """One tree: ranges and choices where values would stand."""
    if isinstance(value, Range | Choice):
        return value
    if isinstance(value, str) and value.strip()[:1] in ("[", "{"):
        try:
            # Everything as text: to YAML, 1:30 is ninety.
            value = yaml.load(value, Loader=yaml.BaseLoader)
        except yaml.YAMLError:
            raise BadParameterError(f"space: {where}: {value!r} cannot be read.") from None
    if isinstance(value, Mapping):
        found: dict[str, Any] = {}
        for key, inner in value.items():
            place = f"{where}.{key}"
            listed = key in (MEMBERS, DEPTH) and isinstance(inner, list | tuple)
            found[str(key)] = (
                [read_node(one, f"{place}.{n}") for n, one in enumerate(inner)]
                if listed
                else read_node(inner, place)
            )
        return found
    if isinstance(value, list | tuple):
        return Choice(tuple(map(_plain, value)))
    if isinstance(value, str) and "," in value:
        return Choice(tuple(_plain(part) for part in value.split(",")))
    if isinstance(value, str) and ":" in value:
        return _range(value, where)
    return Choice((_plain(value),))


def _range(text: str, where: str) -> Range:
    low, _, rest = text.partition(":")
    high, _, how = rest.partition(":")
    try:
        ends = float(low), float(high)
        whole = not set(".eE") & set(low + high)
    except ValueError:
        raise BadParameterError(
            f"space: {where}: expected LOW:HIGH or LOW:HIGH:log with numbers, got {text!r}."
        ) from None
    if how not in ("", "log") or not all(map(math.isfinite, ends)) or ends[0] > ends[1]:
        raise BadParameterError(
            f"space: {where}: expected LOW:HIGH or LOW:HIGH:log with LOW <= HIGH, got {text!r}."
        )
    if how == "log" and ends[0] <= 0:
        raise BadParameterError(f"space: {where}: a log range begins above 0, got {text!r}.")
    return Range(*ends, log=how == "log", whole=whole)


def _plain(value: Any) -> Any:
    return yaml.safe_load(value) if isinstance(value, str) and value.strip() else value


@dataclass(frozen=True)
class Space:
    """The knobs of one method over some members, by name, and how values become parameters."""

    method: str
    tree: Mapping[str, Any]
    members: tuple[str, ...]
    lists: frozenset[str] = frozenset()
    """Parameters that take one value for each member as a list."""
    floats: frozenset[str] = frozenset()
    """Parameters whose numbers need not be whole, however their range is written."""

    def knobs(self, prefix: str = "") -> dict[str, Knob]:
        """Every knob by its name."""
        found: dict[str, Knob] = {}
        for key, node in self.tree.items():
            for name, knob in self._leaves(f"{prefix}{key}", self._spread(key, node)):
                if isinstance(knob, Range) and knob.whole and key in self.floats:
                    knob = Range(knob.low, knob.high, knob.log)
                found[name] = knob
        return found

    def params(self, values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
        """The method's parameters, for a value of each knob."""
        return {
            key: self._filled(f"{prefix}{key}", self._spread(key, node), values)
            for key, node in self.tree.items()
        }

    def _spread(self, key: str, node: Any) -> Any:
        """A node in which `members` names each of them, and what is listed is a list."""
        if is_by(MEMBERS, node):
            inner = node[MEMBERS]
            if isinstance(inner, list):
                if len(inner) != len(self.members):
                    raise BadParameterError(
                        f"space: {key}: expected {len(self.members)} ranges, one per member, got "
                        f"{len(inner)}."
                    )
                inner = dict(zip(self.members, inner, strict=True))
            elif not isinstance(inner, Mapping):
                inner = dict.fromkeys(self.members, inner)
            strange = [name for name in inner if name not in self.members]
            if strange or len(inner) != len(self.members):
                raise BadParameterError(
                    f"space: {key}: expected a range for each of {', '.join(self.members)}, got "
                    f"{', '.join(inner)}."
                )
            return {MEMBERS: [(name, inner[name]) for name in self.members]}
        if isinstance(node, Range) and key in self.lists:
            return {MEMBERS: [(name, node) for name in self.members]}
        if isinstance(node, Mapping):
            return {word: self._spread(key, inner) for word, inner in node.items()}
        return node

    def _leaves(self, name: str, node: Any) -> Iterator[tuple[str, Knob]]:
        if isinstance(node, Range | Choice):
            yield name, node
        elif isinstance(node, Mapping):
            for key, inner in node.items():
                yield from self._leaves(name if key == MEMBERS else f"{name}.{key}", inner)
        else:
            for place, inner in _numbered(node):
                yield from self._leaves(f"{name}.{place}", inner)

    def _filled(self, name: str, node: Any, values: Mapping[str, Any]) -> Any:
        if isinstance(node, Range | Choice):
            return values[name]
        if isinstance(node, Mapping):
            if is_by(MEMBERS, node):
                each = self._filled(name, node[MEMBERS], values)
                # Where the method takes a list it is one, as `weights` always was.
                return each if name.rpartition(".")[2] in self.lists else {MEMBERS: each}
            return {k: self._filled(f"{name}.{k}", inner, values) for k, inner in node.items()}
        return [self._filled(f"{name}.{p}", inner, values) for p, inner in _numbered(node)]


def _numbered(node: Any) -> Iterator[tuple[Any, Any]]:
    """Entries of a list with their place: a member's name where it has one."""
    for index, one in enumerate(node):
        yield one if isinstance(one, tuple) else (index, one)


def _short(value: float) -> str:
    return f"{value:g}"
