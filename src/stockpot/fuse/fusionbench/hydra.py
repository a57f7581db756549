"""Composed YAML: Hydra's `defaults` lists and OmegaConf's `${...}`, as far as model pools use them.

An entry of the list names another file and the place where its content goes:

    - /model/clip-vit@models: clip-vit-base-patch32     one file, or a list of them, under `models`
    - CLIPVisionModelPool@: _template                   a group below this one, at this place
    - clip-vit-base-patch32                             a file beside this one
    - override /model/clip-vit@modelpool.models: other  another choice for an entry further inside
    - _self_                                            this file; last where it is not listed

Later entries win. What the readers here have no use for (datasets, devices, logging) is left out
and named.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stockpot.errors import BadParameterError
from stockpot.foreign import YamlError, read_text, read_value

_DEEPEST = 16
_REFERENCE = re.compile(r"\$\{([^${}]*)\}")
_PACKAGE = re.compile(r"#\s*@package\s+(\S+)")


@dataclass
class Composed:
    """What a file and those it names say together."""

    content: dict[str, Any] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    """The places of entries that were not read."""


def compose(path: Path, wanted: tuple[str, ...], optional: tuple[str, ...] = ()) -> Composed:
    """Read a file and what its `defaults` name.

    Args:
        path: a YAML file; without `defaults` it is read as it is.
        wanted: the places that are read; entries for others are left out.
        optional: those among them whose files may be missing; they are then left out too.
    """
    found = Composed()
    found.content = _Reader(wanted, optional, found.left_out).file(path, "", {}, 0)
    found.left_out = list(dict.fromkeys(found.left_out))
    return found


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file."""
    try:
        content = read_value(read_text(path, BadParameterError))
    except YamlError as problem:
        raise BadParameterError(f"{path}:{problem.line}: not valid YAML: {problem}.") from None
    if not isinstance(content, dict):
        raise BadParameterError(f"{path}: expected a mapping, got {type(content).__name__}.")
    return content


@dataclass(frozen=True)
class _Entry:
    """One entry of a defaults list."""

    group: str
    """The folder of the named files; empty where they lie beside."""
    place: str
    options: tuple[str, ...]
    overrides: bool = False
    optional: bool = False

    def key(self, inside: str) -> str:
        """What an override names it by: the group and the whole place."""
        return f"{self.group.lstrip('/')}@{_joined(inside, self.place)}"


class _Reader:
    def __init__(
        self, wanted: tuple[str, ...], optional: tuple[str, ...], left_out: list[str]
    ) -> None:
        self._wanted = wanted
        self._optional = optional
        self._left_out = left_out

    def file(
        self, path: Path, inside: str, overrides: Mapping[str, tuple[str, ...]], depth: int
    ) -> Any:
        if depth > _DEEPEST:
            raise BadParameterError(f"{path}: defaults that name one another without an end.")
        own = read_yaml(path)
        package = _PACKAGE.match(path.read_text(encoding="utf-8"))
        if package and package[1] != "_group_":
            raise BadParameterError(f"{path}: `@package {package[1]}` is not supported here.")
        entries = list(_entries(own.pop("defaults", None) or [], path))
        chosen = {entry.key(inside): entry.options for entry in entries if entry.overrides}
        chosen |= overrides
        result: dict[str, Any] = {}
        listed = [entry for entry in entries if not entry.overrides]
        if not any(entry is SELF for entry in listed):
            listed.append(SELF)
        for entry in listed:
            if entry is SELF:
                _merge(result, own)
                continue
            if entry.place.partition(".")[0] not in self._wanted:
                self._left_out.append(entry.place)
                continue
            missing = entry.optional or entry.place in self._optional
            for option in chosen.get(entry.key(inside), entry.options):
                named = _find(path, replace(entry, optional=missing), option)
                if named is None and not entry.optional:
                    self._left_out.append(entry.place)
                if named is not None:
                    below = self.file(named, _joined(inside, entry.place), chosen, depth + 1)
                    _merge(_at(result, entry.place), below)
        return result


SELF = _Entry("", "", ("_self_",))


def _entries(defaults: Any, path: Path) -> Iterator[_Entry]:
    for item in defaults if isinstance(defaults, list) else [None]:
        if item == "_self_":
            yield SELF
        elif isinstance(item, str):
            name, _, place = item.partition("@")
            yield _Entry("", place, (name,))
        elif isinstance(item, dict) and len(item) == 1:
            ((key, value),) = item.items()
            if value is None:
                continue
            options = tuple(map(str, value)) if isinstance(value, list) else (str(value),)
            words = str(key).split()
            group, at, place = words[-1].partition("@")
            if not at:
                place = group.strip("/").replace("/", ".")
            place = "" if place == "_here_" else place
            yield _Entry(group, place, options, "override" in words[:-1], "optional" in words[:-1])
        else:
            raise BadParameterError(
                f"{path}: defaults: expected names and `group: name` entries, got {item!r}."
            )


def _find(path: Path, entry: _Entry, option: str) -> Path | None:
    """The file of an option: beside this one, or from a folder further up, as Hydra's root is."""
    name = f"{option.removesuffix('.yaml')}.yaml"
    inside = f"{entry.group}/{name}".lstrip("/")
    for folder in path.resolve().parents:
        if (folder / inside).is_file():
            return folder / inside
    if entry.optional:
        return None
    raise BadParameterError(
        f"{path}: defaults: there is no {inside} beside it or in a folder above.",
        hint="Keep the file where it is in its tree of configurations.",
    )


def _joined(inside: str, place: str) -> str:
    return f"{inside}.{place}" if inside and place else inside or place


def _at(content: dict[str, Any], place: str) -> dict[str, Any]:
    for key in place.split(".") if place else ():
        if not isinstance(content.get(key), dict):  # ??? and null wait for a value
            content[key] = {}
        content = content[key]
    return content


def _merge(into: dict[str, Any], other: Mapping[str, Any]) -> None:
    for key, value in other.items():
        known = into.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            _merge(known, value)
        else:
            into[key] = value


def interpolated(root: Mapping[str, Any], place: tuple[str, ...], where: str) -> Any:
    """The value at a place, with every `${...}` in it replaced by what it names."""
    return _resolved(root, place, _walk(root, place, where), where, 0)


def _resolved(
    root: Mapping[str, Any], place: tuple[str, ...], value: Any, where: str, depth: int
) -> Any:
    if isinstance(value, Mapping):
        return {k: _resolved(root, (*place, k), v, where, depth) for k, v in value.items()}
    if isinstance(value, list):
        return [
            _resolved(root, (*place, str(number)), each, where, depth)
            for number, each in enumerate(value)
        ]
    if not isinstance(value, str) or "${" not in value:
        return value
    if depth > _DEEPEST:
        raise BadParameterError(f"{where}: {value!r} names itself.")

    def named(match: re.Match[str]) -> Any:
        at, found = _named(root, place, match[1].strip(), where)
        return _resolved(root, at, found, where, depth + 1)

    whole = _REFERENCE.fullmatch(value)
    if whole:
        return named(whole)
    return _REFERENCE.sub(lambda match: str(named(match)), value)


def _named(
    root: Mapping[str, Any], place: tuple[str, ...], text: str, where: str
) -> tuple[tuple[str, ...], Any]:
    """What `..key`, `a.b` or `oc.env:NAME` stands for, and the place of it."""
    if text.startswith("oc.env:"):
        name, _, default = text.removeprefix("oc.env:").partition(",")
        value = os.environ.get(name.strip(), default.strip() or None)
        if value is None:
            raise BadParameterError(f"{where}: ${{{text}}}: the variable {name} is not set.")
        return (), value
    if ":" in text:
        raise BadParameterError(f"{where}: ${{{text}}} is not supported here.")
    dots = len(text) - len(text.lstrip("."))
    keys = tuple(text.lstrip(".").split("."))
    at = (*place[:-dots], *keys) if dots else keys
    if not dots and keys[0] == "modelpool" and "modelpool" not in root:
        at = keys[1:]
    return at, _walk(root, at, f"{where}: ${{{text}}}")


def _walk(root: Any, place: tuple[str, ...], where: str) -> Any:
    for key in place:
        if not isinstance(root, Mapping) or key not in root:
            raise BadParameterError(f"{where}: there is no {'.'.join(place)}.")
        root = root[key]
    return root
