"""What an autoencoder learned from, where its folder tells: `training.json` of our own training."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

from stockpot.checkpoints.resolve import resolve


class Upbringing(NamedTuple):
    """The data and the eyes of an autoencoder's training."""

    name: str
    sides: dict[str, int]
    """The datasets it saw, each with the largest side."""
    perception: str
    """The model in whose features reconstructions were compared."""

    def knows(self, data: str, side: int) -> bool:
        """Whether it saw such pictures, at this size or a larger one."""
        return self.sides.get(data, 0) >= side


def upbringing_of(source: str | Path) -> Upbringing | None:
    """What the folder of an autoencoder says of its training; most published ones say nothing."""
    place = resolve(source, "autoencoder")
    if place.path is None or not (place.path / "training.json").is_file():
        return None
    facts = json.loads((place.path / "training.json").read_text(encoding="utf-8"))
    sides: dict[str, int] = {}
    for text in facts.get("data", {}):
        if found := re.fullmatch(r"(.+), (\d+) px", text):
            sides[found[1]] = max(sides.get(found[1], 0), int(found[2]))
    return Upbringing(place.name, sides, str(facts.get("perception", "")))
