"""A run folder: its recipe and manifest, what lies in it, and what of that is stale."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

import yaml

from stockpot.checkpoints.record import read_record
from stockpot.errors import BadCheckpointError, UserError
from stockpot.files import write_atomic
from stockpot.recipe import RecipeFile
from stockpot.remote.address import refuse_address
from stockpot.results.manifest import MANIFEST, Manifest, changing, read_manifest, write_manifest
from stockpot.results.samples_file import samples_path
from stockpot.results.store import UNFINISHED, scratch_name

State = Literal["present", "missing", "stale"]


class Item(NamedTuple):
    """A model or a cell of a run."""

    kind: Literal["model", "cell"]
    name: str
    state: State
    path: Path
    note: str = ""


class RunSummary(NamedTuple):
    """One run folder at a glance."""

    folder: Path
    manifest: Manifest
    items: list[Item]

    def number(self, kind: str, state: str) -> int:
        """How many models or cells are in a state."""
        return sum(item.kind == kind and item.state == state for item in self.items)


def runs_in(folder: str | Path = "runs") -> list[RunSummary]:
    """The runs under a folder, at any depth that is not inside another run."""
    root = Path(folder)
    refuse_address(root)
    if not root.is_dir():
        raise UserError(f"no folder at {root}.", hint="Runs go to runs/NAME unless -o says where.")
    return [RunSummary(path, manifest_of(path), contents(path)) for path in _folders(root)]


def _folders(root: Path) -> Iterator[Path]:
    if (root / MANIFEST).is_file():
        yield root
        return
    for path in sorted(root.iterdir()):
        if path.is_dir() and not path.is_symlink() and not path.name.startswith("."):
            yield from _folders(path)


def manifest_of(folder: str | Path) -> Manifest:
    """The manifest of a run folder, which must have one."""
    found = read_manifest(folder)
    if found is None:
        raise UserError(
            f"{folder} is not a run folder: it has no {MANIFEST}.",
            hint="`stockpot run RECIPE -o FOLDER` writes it.",
        )
    return found


def contents(folder: str | Path) -> list[Item]:
    """Every model and cell of a run, with what is asked for and not there."""
    root = Path(folder)
    manifest = manifest_of(root)
    return [*_models(root / "models", manifest), *_cells(root / "results", manifest)]


def _models(folder: Path, manifest: Manifest) -> Iterator[Item]:
    there = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    unfinished = []
    for name in manifest.models:
        path = folder / name
        if path.exists() and _digest(path) == manifest.models[name]:
            yield Item("model", name, "present", path)
            continue
        unfinished.append(name)
        if path.exists():
            yield Item("model", name, "stale", path, "made for another recipe")
        else:
            yield Item("model", name, "missing", path, "to make")
    for name in there:
        # What begins with a dot was left by a run that was killed, which may go on from it.
        needed = any(name.lstrip(".").startswith(f"{other}.") for other in unfinished)
        if name not in manifest.models and not (name.startswith(".") and needed):
            yield Item("model", name, "stale", folder / name, "not in the recipe")


def _digest(folder: Path) -> str:
    try:
        record = read_record(folder)
    except BadCheckpointError:
        return ""
    return record.digest if record else ""


def _cells(folder: Path, manifest: Manifest) -> Iterator[Item]:
    there = sorted(path.name for path in folder.glob("*.json")) if folder.is_dir() else []
    for name in dict.fromkeys([*manifest.cells, *manifest.added, *there]):
        path = folder / name
        if name not in manifest.present:
            yield Item("cell", path.stem, "stale", path, "not of the present recipe")
        elif not path.exists():
            yield Item("cell", path.stem, "missing", path, "to measure")
        else:
            added = "measured by hand" if name in manifest.added else ""
            yield Item("cell", path.stem, "present", path, added)
    begun = folder / UNFINISHED
    waiting = {
        scratch_name(Path(name).stem.rpartition("--")[2])
        for name in manifest.present
        if not (folder / name).exists()
    }
    for path in sorted(begun.iterdir()) if begun.is_dir() else []:
        if path.name not in waiting:  # else the cell goes on from it
            yield Item("cell", path.name, "stale", path, "begun, and nothing goes on from it")


def prune(folder: str | Path, *, dry_run: bool = False) -> list[Item]:
    """Remove the stale models and cells of a run; gives back what was (or would be) removed."""
    stale = [item for item in contents(folder) if item.state == "stale"]
    for item in stale if not dry_run else ():
        if item.path.is_dir() and not item.path.is_symlink():
            shutil.rmtree(item.path)
        else:
            item.path.unlink()
            samples_path(item.path).unlink(missing_ok=True)
    if not dry_run:
        with suppress(OSError):  # others are still needed, or there was nothing
            (Path(folder) / "results" / UNFINISHED).rmdir()
    return stale


RECIPE = "recipe.yaml"
LOCK = ".lock"
"""Held by the run that works in a folder."""


def clear(folder: Path) -> None:
    """Remove a whole run, and nothing that is not one."""
    there = [path for path in folder.glob("*") if path.name != LOCK]
    shown = [path for path in there if not path.name.startswith(".")]
    if shown and not (folder / RECIPE).exists():
        raise UserError(
            f"{folder} is not a run folder (no {RECIPE} in it), so --fresh leaves it alone."
        )
    for path in there:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def remember(
    file: RecipeFile, folder: Path, *, models: Mapping[str, str], cells: Sequence[str]
) -> None:
    """Keep the recipe as it was followed, overrides included, and what belongs to it."""
    text = yaml.safe_dump(file.raw, sort_keys=False, allow_unicode=True)
    if not _is_same(folder / RECIPE, text):
        write_atomic(folder / RECIPE, text)
    with changing(folder):
        before = read_manifest(folder) or Manifest()
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
