"""One rule for naming members: the last part of their source, made unique and safe for a folder."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from stockpot.checkpoints.resolve import WEIGHT_SUFFIXES
from stockpot.errors import BadParameterError

_UNSAFE = re.compile(r"[^\w.@=+,-]+")


def by_name(members: Any, *, taken: Collection[str] = ()) -> dict[str, Any]:
    """Members by their names: a mapping's own, or those of `member_names`; one alone is a list."""
    if isinstance(members, Mapping):
        if wrong := [name for name in members if name in taken]:
            raise BadParameterError(
                f"members: {wrong[0]!r} means something else here; call that member otherwise."
            )
        return dict(members)
    several = isinstance(members, Sequence) and not isinstance(members, str)
    listed: Sequence[Any] = members if several else [members]
    return dict(zip(member_names(listed, taken=taken), listed, strict=True))


def member_names(members: Sequence[Any], *, taken: Collection[str] = ()) -> list[str]:
    """A name for each member, in order: fit for tables, cards, keys and folders.

    The last part of a path, file, hub id or zoo name. Where two fall together, as much of the path
    in front is added as tells them apart (`a/model` and `b/model` are `a-model` and `b-model`);
    one source given twice is numbered (`model`, `model-2`). Weights without a source are
    `member-1`, `member-2`, ... by their place.

    Args:
        members: texts, paths, opened or located checkpoints, classifiers, state dicts.
        taken: names that must not be given, because they mean something else.
    """
    parts = [_parts(_text(member), number) for number, member in enumerate(members, start=1)]
    distinct = list(dict.fromkeys(parts))
    lengths = dict.fromkeys(distinct, 1)
    reserved = Counter(name.casefold() for name in taken)

    def name_of(part: tuple[str, ...]) -> str:
        return "-".join(part[-lengths[part] :])

    while True:
        # Some file systems take `A` and `a` for one name.
        seen = reserved + Counter(name_of(part).casefold() for part in distinct)
        longer = [
            part
            for part in distinct
            if seen[name_of(part).casefold()] > 1 and lengths[part] < len(part)
        ]
        if not longer:
            break
        for part in longer:
            lengths[part] += 1
    names: list[str] = []
    used = set(reserved)
    for part in parts:
        name = stem = name_of(part)
        number = 2
        while name.casefold() in used:
            name, number = f"{stem}-{number}", number + 1
        used.add(name.casefold())
        names.append(name)
    return names


def _text(member: Any) -> str:
    if isinstance(member, str | Path):
        return str(member)
    if isinstance(member, Mapping):
        return ""
    label = getattr(member, "label", None)
    source = label or getattr(getattr(member, "origin", None), "source", None)
    return source if isinstance(source, str) else ""


def _parts(text: str, number: int) -> tuple[str, ...]:
    if text.startswith("open_clip:"):
        return (_safe(text.removeprefix("open_clip:")),)
    path = Path(text.removeprefix("zoo:").removeprefix("timm:").removeprefix("robustbench:"))
    if text and path.name in ("", ".."):
        path = path.resolve()
    last = path.name.removesuffix(path.suffix) if path.suffix in WEIGHT_SUFFIXES else path.name
    parts = [_safe(part) for part in (*path.parts[:-1], last)]
    return tuple(part for part in parts if part) or (f"member-{number}",)


def _safe(part: str) -> str:
    return _UNSAFE.sub("-", part).strip(".-")
