"""Parameters of a measure by which its question is known: what they name counts by its content."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stockpot.attack.saved_images import read_manifest
from stockpot.checkpoints.record import read_record
from stockpot.checkpoints.resolve import resolve
from stockpot.dynamic.oracles.human import sheets_at
from stockpot.errors import UserError
from stockpot.measure.chosen_data import marked, with_fingerprint
from stockpot.models.fingerprint import fingerprint_files
from stockpot.models.inputs import identify_autoencoder
from stockpot.models.load import identify

_BY_CONTENT = re.compile(r"@[0-9a-f]{16}$")


def by_content(
    params: Mapping[str, Any], references: Mapping[str, str], place: str = ""
) -> dict[str, Any]:
    """Parameters in which what is read stands by its content: its place decides nothing.

    Datasets whose pictures are looked at again later (`datasets`) keep their place beside it.
    """
    found: dict[str, Any] = {}
    for key, value in params.items():
        role = f"{place}{key}"
        if references.get(role) == "data" and value:
            found[key] = marked(value, role)
        elif references.get(role) == "datasets" and value:
            found[key] = {name: with_fingerprint(one, name) for name, one in value.items()}
        elif isinstance(value, Mapping):
            found[key] = by_content(value, references, f"{role}.")
        elif references.get(role) == "oracles" and isinstance(value, list | tuple):
            found[key] = [
                by_content(one, references, f"{role}.{index}.") if isinstance(one, Mapping) else one
                for index, one in enumerate(value)
            ]
        elif references.get(role) == "model" and value:
            found[key] = _model(value, params.get("options"))
        elif references.get(role) == "sheets" and value:
            found[key] = f"{Path(value).name}@{fingerprint_files(sheets_at(value))[:16]}"
        elif references.get(role) == "autoencoder" and value and Path(value).exists():
            found[key] = f"{Path(value).name}@{identify_autoencoder(value)[:16]}"
        elif references.get(role) == "images" and value:
            found[key] = f"{Path(value).name}@{read_manifest(value)['sha256'][:16]}"
        else:
            found[key] = value
    return found


def contents(params: Mapping[str, Any], references: Mapping[str, str]) -> dict[str, str]:
    """Of folders that keep their place, since pictures are looked at again later, what is in them.

    Of corrupted pictures their record says it; published sets have none, and stay what they are.
    """
    found: dict[str, str] = {}
    for key, value in params.items():
        if references.get(key) == "corrupted" and value:
            record = read_record(Path(value).expanduser())
            found |= {key: record.digest} if record is not None else {}
    return found


def without_place(
    params: Mapping[str, Any], references: Mapping[str, str], place: str = ""
) -> list[str]:
    """Which of the parameters of a saved result name what nobody can find again: `name@content`."""
    found = []
    for key, value in params.items():
        role = f"{place}{key}"
        named = references.get(role)
        parts = value.values() if isinstance(value, Mapping) and named else [value]
        if named and any(isinstance(part, str) and _BY_CONTENT.search(part) for part in parts):
            found.append(role)
        elif isinstance(value, Mapping) and not named:
            found += without_place(value, references, f"{role}.")
    return found


def _model(source: str, options: Mapping[str, Any] | None) -> str:
    """A model that is made or lies here with its content; what comes by name, or is none, as it is.

    Its options (`weights`) stand beside it, where it can have some. A rule such as
    `alexnet-constants` is no model; of a mistake, whoever loads it will tell.
    """
    try:
        place = resolve(source)
    except UserError:
        return source
    if place.kind not in ("folder", "onnx", "program", "factory"):
        return source
    return f"{Path(source).name}@{identify(place, options)[:16]}"
