"""Words that lie beside a dual encoder: those it was trained with, for data of these classes.

`words.json` in its folder is a list of `{"classes": [...], "names": [...], "templates": [...]}`;
without `names` the classes are called as they are. A vision tower has those of its folder, and
otherwise those of its dual encoder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stockpot.datasets.words.words import MODEL, Words
from stockpot.errors import BadCheckpointError
from stockpot.models.config import (
    is_vision_tower,
    kind_of,
    named_dual_encoder,
    nearby_dual_encoder,
    plain_inside,
    read_config,
)

FILE = "words.json"


def own_words_of(
    folder: Path, classes: tuple[str, ...], dual_encoder: str | None = None
) -> Words | None:
    """What the model in a folder was told of these classes, where that is kept beside it."""
    config = read_config(folder)
    if kind_of(config) == "module":
        return own_words_of(plain_inside(folder, config), classes, dual_encoder)
    if (found := _beside(folder, classes)) is not None or not is_vision_tower(config):
        return found
    named = dual_encoder or named_dual_encoder(config)
    home = nearby_dual_encoder(folder, named) if named else None
    return _beside(home[0], classes) if home else None


def write_own_words(
    folder: Path, classes: tuple[str, ...], words: Words, like: Path | None = None
) -> None:
    """Keep beside a model what it was told in training, and what the model `like` was told."""
    others = _entries(like) if like else []
    own = {"classes": classes, "names": words.names, "templates": words.templates}
    entries = [own, *(entry for entry in others if tuple(entry["classes"]) != classes)]
    text = json.dumps(entries, indent=1, ensure_ascii=False)
    (folder / FILE).write_text(text + "\n", encoding="utf-8")


def _beside(folder: Path, classes: tuple[str, ...]) -> Words | None:
    for entry in _entries(folder):
        if tuple(entry["classes"]) == classes:
            names = tuple(entry.get("names", classes))
            return Words(names, tuple(entry["templates"]), MODEL)
    return None


def _entries(folder: Path) -> list[dict[str, Any]]:
    path = folder / FILE
    if not path.is_file():
        return []
    try:
        found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as problem:
        raise BadCheckpointError(f"{path} is not JSON: {problem}.") from None
    if not isinstance(found, list) or not all(
        isinstance(entry, dict) and entry.get("classes") and entry.get("templates")
        for entry in found
    ):
        raise BadCheckpointError(f"{path}: expected a list of {{classes, names, templates}}.")
    return found
