"""Whether a model was trained on what it is measured by.

A corruption that training shows a model no longer tells how it does on the unforeseen. The record
of a hardened model names the corruptions that its training held, or came near, and by what; a
result and a report take it from there. A model fused or seasoned from such models has seen it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stockpot.checkpoints.record import MEMBER, Record, read_record
from stockpot.checkpoints.resolve import resolve
from stockpot.dynamic.generators import generators
from stockpot.errors import UserError
from stockpot.harden import hardeners
from stockpot.models.classifier import Classifier

AUGMENTATIONS: Mapping[str, tuple[str, ...]] = {
    "colour": ("brightness", "contrast", "saturate"),
    "randaugment": ("brightness", "contrast", "saturate"),
    "trivialaugment": ("brightness", "contrast", "saturate"),
}
"""The loop's augmentations that hold corruptions."""

_PARENTS = (MEMBER, "base", "model", "adapted")
"""The roles of inputs whose weights a model goes on from."""


def held_corruptions(method: str, parameters: Mapping[str, Any]) -> dict[str, str]:
    """Corruption -> by what, for a training with these parameters (defaults may be left out)."""
    if method not in hardeners:
        return {}
    entry = hardeners.get(method)
    found = dict.fromkeys(entry.tags.holds, method)
    for augmentation in parameters.get("augmentations") or ():
        for name in AUGMENTATIONS.get(str(augmentation), ()):
            found.setdefault(name, f"augmentation {augmentation}")
    defaults = {each.name: each.default for each in entry.parameters}
    generator = str(parameters.get("generator", defaults.get("generator", "")))
    if "generator" in defaults and generator in generators:
        made = generators.get(generator)
        own = {each.name: each.default for each in made.parameters}
        given = parameters.get("generator_params") or {}
        names = given.get("corruptions", own.get("corruptions")) or ()
        names = names.split(",") if isinstance(names, str) else names
        for name in (*made.tags.holds, *names):
            found.setdefault(str(name), f"generator {generator}")
    return found


def recorded(source: str | Path | Classifier, revision: str | None = None) -> Record | None:
    """The record of a model that lies in a folder."""
    if isinstance(source, Classifier):
        return None
    place = resolve(source, revision=revision)
    if place.path is not None and not place.has_files:
        return read_record(place.path.parent)  # of a shipped file
    folder = place.local() if place.has_files else None
    return read_record(folder) if folder is not None and folder.is_dir() else None


def trained_on(
    source: str | Path | Classifier, revision: str | None = None, depth: int = 8
) -> dict[str, str]:
    """Corruption -> by what, for a model and the models that it was made from."""
    made = recorded(source, revision)
    if made is None:
        return {}
    found = dict(made.trained_on)
    if made.verb == "harden":
        found |= held_corruptions(made.method, made.parameters)
    for one in made.inputs if depth else ():
        if one.role in _PARENTS and _is_here(one.source):
            found = trained_on(one.source, depth=depth - 1) | found
    return found


def _is_here(source: str) -> bool:
    """Whether a parent can be asked; what a hardened one told was written down when it was."""
    try:
        return bool(source) and resolve(source).kind in ("folder", "zoo")
    except UserError:
        return False
