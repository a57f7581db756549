"""Parameters of a measure by which its question is known: what they name counts by its content."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stockpot.attack.saved_images import read_manifest
from stockpot.measure.chosen_data import marked
from stockpot.models.inputs import identify_autoencoder
from stockpot.models.load import identify


def by_content(
    params: Mapping[str, Any], references: Mapping[str, str], place: str = ""
) -> dict[str, Any]:
    """Parameters in which what is read stands by its content: its place decides nothing."""
    found: dict[str, Any] = {}
    for key, value in params.items():
        role = f"{place}{key}"
        if references.get(role) == "data" and value:
            found[key] = marked(value, role)
        elif isinstance(value, Mapping):
            found[key] = by_content(value, references, f"{role}.")
        elif references.get(role) == "model" and value and Path(value).is_dir():
            found[key] = f"{Path(value).name}@{identify(value)[:16]}"
        elif references.get(role) == "autoencoder" and value and Path(value).exists():
            found[key] = f"{Path(value).name}@{identify_autoencoder(value)[:16]}"
        elif references.get(role) == "images" and value:
            found[key] = f"{Path(value).name}@{read_manifest(value)['sha256'][:16]}"
        else:
            found[key] = value
    return found
