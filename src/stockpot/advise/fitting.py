"""Which members line up with the base, from headers alone, and what stands in the way."""

from __future__ import annotations

import json
from pathlib import Path

from stockpot.advise.facts import Fits
from stockpot.checkpoints.alignment import align
from stockpot.checkpoints.layouts import by_plain_name
from stockpot.checkpoints.source import Source
from stockpot.errors import BadCheckpointError


def fit(member: Source, base: Source) -> tuple[Fits, str]:
    """How a member lines up with the base, and in words what differs."""
    try:
        align([member], base)
    except BadCheckpointError:
        try:
            align([member], base, head="drop")
        except BadCheckpointError:
            return "other architecture", _difference(member, base)
        return "other head", "its classification head has another shape"
    own, other = _classes(member.folder), _classes(base.folder)
    if own and other and own != other:
        return "other classes", f"its head answers {_listed(own)}, the base's {_listed(other)}"
    return "whole", ""


def _difference(member: Source, base: Source) -> str:
    """How much two architectures share."""
    own, other = _shapes(member), _shapes(base)
    same = sum(other.get(name) == shape for name, shape in own.items())
    kinds = [kind for folder in (member.folder, base.folder) if (kind := _kind(folder))]
    kinds = kinds if len(set(kinds)) == 2 else []
    told = f" (`{kinds[0]}`, not `{kinds[1]}`)" if kinds else ""
    return f"{same} of its {len(own)} tensors have a name and shape that the base has{told}"


def _shapes(source: Source) -> dict[str, tuple[int, ...]]:
    infos = source.tensors()
    return {plain: infos[name].shape for plain, name in by_plain_name(infos).items()}


def _config(folder: Path | None) -> dict[str, object]:
    file = folder / "config.json" if folder else None
    if file is None or not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError):
        return {}  # whoever loads the model says what is wrong with it
    return found if isinstance(found, dict) else {}


def _kind(folder: Path | None) -> str:
    return str(_config(folder).get("model_type", ""))


def _classes(folder: Path | None) -> tuple[str, ...]:
    named = _config(folder).get("id2label")
    return tuple(map(str, named.values())) if isinstance(named, dict) else ()


def _listed(classes: tuple[str, ...]) -> str:
    more = f", ... ({len(classes)} classes)" if len(classes) > 3 else ""
    return ", ".join(classes[:3]) + more
