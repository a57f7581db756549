"""The embedded dataset and models, and the cards that say how they were made."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Card(NamedTuple):
    """What is known of one embedded model."""

    name: str
    summary: str
    text: str


def cards() -> list[Card]:
    """The cards of all embedded models and generators."""
    found = []
    for path in sorted(Path(__file__).parent.glob("*/*/README.md")):
        text = path.read_text(encoding="utf-8")
        body = text.split("---\n", 2)[-1] if text.startswith("---") else text
        lines = [line.strip() for line in body.splitlines()]
        summary = next((line for line in lines if line and not line.startswith("#")), "")
        found.append(Card(path.parent.name, summary, body.strip()))
    return found
