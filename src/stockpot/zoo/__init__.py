"""The embedded dataset and models, and the cards that say how they were made."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Card(NamedTuple):
    """What is known of one embedded model."""

    name: str
    summary: str
    text: str


def model_folder(source: str) -> Path | None:
    """The folder of an embedded model, named with or without `zoo:`; none where there is none."""
    folder = Path(__file__).parent / "models" / source.removeprefix("zoo:")
    return folder if source and (folder / "config.json").is_file() else None


def generator_folder(source: str) -> Path | None:
    """The folder of an embedded autoencoder, named with or without `zoo:`."""
    folder = Path(__file__).parent / "generators" / source.removeprefix("zoo:")
    return folder if source and (folder / "config.json").is_file() else None


def generator_names() -> list[str]:
    """The names of the embedded autoencoders."""
    folder = Path(__file__).parent / "generators"
    return sorted(path.parent.name for path in folder.glob("*/config.json"))


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
