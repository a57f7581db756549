"""A run's folder: the recipe as it was followed, and the manifest of what belongs to it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import yaml

from stockpot.errors import UserError
from stockpot.files import write_atomic
from stockpot.recipe import RecipeFile
from stockpot.results.manifest import Manifest, read_manifest, write_manifest

RECIPE = "recipe.yaml"


def clear(folder: Path) -> None:
    """Remove a whole run, and nothing that is not one."""
    if folder.exists() and not (folder / RECIPE).exists():
        raise UserError(
            f"{folder} is not a run folder (no {RECIPE} in it), so --fresh leaves it alone."
        )
    shutil.rmtree(folder, ignore_errors=True)


def remember(
    file: RecipeFile, folder: Path, *, models: Mapping[str, str], cells: Sequence[str]
) -> None:
    """Keep the recipe as it was followed, overrides included, and what belongs to it."""
    text = yaml.safe_dump(file.raw, sort_keys=False, allow_unicode=True)
    before = read_manifest(folder) or Manifest()
    if not _is_same(folder / RECIPE, text):
        write_atomic(folder / RECIPE, text)
    write_manifest(
        folder,
        Manifest(
            recipe=file.name,
            updated=datetime.now(UTC).isoformat(timespec="seconds"),
            models=dict(models),
            cells=list(dict.fromkeys(cells)),
            added=[name for name in before.added if name not in set(cells)],
        ),
    )


def _is_same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text
