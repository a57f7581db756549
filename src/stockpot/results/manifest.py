"""The manifest of a run folder: which models and cells belong to the recipe it followed last.

A changed recipe leaves the results of the one before beside the new ones. Whoever reads a run
folder asks its manifest, so that rows of different questions never stand in one table.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stockpot.errors import UserError
from stockpot.files import write_atomic
from stockpot.lock import held_alone

MANIFEST = "run.json"
_PATIENCE = 60.0
"""Seconds to wait for others that change a manifest, which takes them milliseconds."""


class Manifest(BaseModel):
    """What a run folder holds of its present recipe."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    manifest_version: Literal[1] = 1
    recipe: str = Field("", description="The recipe that was followed, as it was named.")
    updated: str = Field("", description="When the run was last followed.")
    models: dict[str, str] = Field(
        default_factory=dict, description="The digest of every model that the recipe makes."
    )
    cells: list[str] = Field(default_factory=list, description="File names of its results.")
    added: list[str] = Field(
        default_factory=list, description="Results that were measured into the folder by hand."
    )

    @property
    def present(self) -> set[str]:
        """The file names of all results that count."""
        return {*self.cells, *self.added}


def read_manifest(folder: str | Path) -> Manifest | None:
    """The manifest of a run folder; none where there is none."""
    path = Path(folder) / MANIFEST
    if not path.is_file():
        return None
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the document"
        raise UserError(
            f"{path} is not a manifest of this version: {where}: {first['msg']}.",
            hint="Remove it; the next `stockpot run` writes it anew.",
        ) from problem


def made_models(folder: str | Path) -> list[Path]:
    """The folders of the models that a run made, by name; of another recipe's none."""
    manifest = read_manifest(folder)
    found = sorted(path for path in (Path(folder) / "models").glob("*") if path.is_dir())
    return [path for path in found if manifest is None or path.name in manifest.models]


def write_manifest(folder: str | Path, manifest: Manifest) -> None:
    """Write the manifest, whole or not at all."""
    write_atomic(Path(folder) / MANIFEST, manifest.model_dump_json(indent=1) + "\n")


def add_cells(folder: str | Path, names: Iterable[str]) -> None:
    """Note results that someone measured into a run folder; other folders have no manifest."""
    if read_manifest(folder) is None:
        return
    with changing(folder):
        manifest = read_manifest(folder) or Manifest()
        new = [name for name in names if name not in manifest.present]
        if new:
            write_manifest(folder, manifest.model_copy(update={"added": [*manifest.added, *new]}))


def changing(folder: str | Path) -> AbstractContextManager[None]:
    """Read and write a manifest in one go: several processes may add to one folder."""
    path = Path(folder) / MANIFEST
    return held_alone(path.with_name(f".{MANIFEST}.lock"), path, wait=_PATIENCE)
