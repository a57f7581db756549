"""Versions of the results that people can cite: numbered CSV files that are never changed.

A site that is built again with the same results keeps its version; with others it gets the next
number, and the files of earlier versions stay where they are.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from stockpot.errors import UserError

FOLDER = "csv"
LIST = f"{FOLDER}/versions.json"


class Version(BaseModel):
    """One version of the results."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int
    date: str
    file: str
    sha256: str
    rows: int
    models: int


_Versions = TypeAdapter(list[Version])


class Released(NamedTuple):
    """All versions, the last being that of the given text; files that are to be written."""

    versions: list[Version]
    files: dict[str, str]


def release(site: Path, text: str, *, date: str, rows: int, models: int) -> Released:
    """The version of these results in a site that may hold earlier ones."""
    known = _known(site)
    sha = hashlib.sha256(text.encode()).hexdigest()
    if not known or known[-1].sha256 != sha:
        number = known[-1].version + 1 if known else 1
        name = f"{FOLDER}/results-v{number}.csv"
        told = {"version": number, "date": date, "file": name, "sha256": sha}
        known = [*known, Version(**told, rows=rows, models=models)]
    listing = json.dumps([one.model_dump() for one in known], indent=1) + "\n"
    return Released(known, {known[-1].file: text, LIST: listing})


def _known(site: Path) -> list[Version]:
    path = site / LIST
    if not path.is_file():
        return []
    try:
        known = _Versions.validate_json(path.read_bytes())
    except ValidationError as problem:
        raise UserError(f"{path} is no list of versions of a leaderboard.") from problem
    for one in known:
        file = site / one.file
        if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != one.sha256:
            raise UserError(
                f"{file} is not what version {one.version} was: people may have cited it.",
                hint="Bring it back, or build into another folder.",
            )
    return known


def citation(title: str, version: Version, authors: list[str], url: str) -> str:
    """A CITATION.cff for the version."""
    names = authors or ["The contributors of this leaderboard"]
    lines = [
        "cff-version: 1.2.0",
        "message: Cite these results with their version.",
        "type: dataset",
        f"title: {json.dumps(title)}",
        f'version: "{version.version}"',
        *([f"date-released: {version.date[:10]}"] if version.date else []),
        *([f"url: {json.dumps(url)}"] if url else []),
        "authors:",
        *(f"  - name: {json.dumps(name)}" for name in names),
        "identifiers:",
        f"  - {{type: other, value: 'sha256:{version.sha256}', description: {version.file}}}",
    ]
    return "\n".join(lines) + "\n"
