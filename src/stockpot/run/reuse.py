"""Whether a model of a recipe is there already: the same question, not merely the same name.

The record beside a model says what it was made from and how. A model is reused when its digest is
the one that making it now would have; anything else is made anew, beside the old one, which goes
when the new one is whole. A kill leaves either of them, or both, and nothing mixed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stockpot.checkpoints.folder import has_weights, remove_leftovers
from stockpot.checkpoints.record import RECORD, Record, read_record, write_record
from stockpot.errors import BadCheckpointError
from stockpot.fuse.learning.learner import learned_files
from stockpot.models.fingerprint import fingerprint_files
from stockpot.recipe import Recipe
from stockpot.run.order import Order, order_of

SAVED = "saved"
"""Under `details` of a fusion's record: the content of what it learned and saved."""


@dataclass(frozen=True)
class Verdict:
    """What is to be done about one model."""

    name: str
    digest: str = ""
    """Of the model that the recipe asks for; unknown while a parent has to be made."""
    where: Path | None = None
    """The folder of the model with that digest, if there is one."""
    why: str = ""
    """Why it has to be made."""
    remade: bool = False
    """Whether another model stands in its place."""

    @property
    def there(self) -> bool:
        """Whether nothing has to be made."""
        return self.where is not None


def judge(recipe: Recipe, name: str, folder: Path) -> Verdict:
    """Compare what the recipe asks for with what is there; all parents must be in place."""
    wanted = record_of(order_of(recipe, name, folder))
    target, *asides = _places(folder, name)
    found = _record(target)
    if found is not None and found.digest == wanted.digest:
        lost = _lost(recipe, name, target, found)
        if not lost:
            return Verdict(name, wanted.digest, target)
        return Verdict(name, wanted.digest, why=lost, remade=True)
    for aside in asides:
        other = _record(aside)
        if other is not None and other.digest == wanted.digest:
            return Verdict(name, wanted.digest, aside)
    if not target.exists():
        return Verdict(name, wanted.digest, why="not made yet")
    if found is None:
        why = "it has no record of its making"
    elif not (target / RECORD).is_file():
        why = "its record is of an earlier version, which does not say all that it was made from"
    else:
        why = ", ".join(found.differences(wanted)) or "another digest"
    return Verdict(name, wanted.digest, why=why, remade=True)


def _record(folder: Path) -> Record | None:
    try:
        return read_record(folder)
    except BadCheckpointError:
        return None  # of a version that this one cannot read: made anew like one without


def _lost(recipe: Recipe, name: str, target: Path, found: Record) -> str:
    """What is gone: the weights, or what a fusion was to `save` elsewhere, as it wrote it."""
    if not has_weights(target):
        return "its weights are gone"
    entry = recipe.fuse.get(name)
    if entry is None or entry.save is None:
        return ""
    files = learned_files(entry.save)
    if not all(path.is_file() for path in files):
        return f"{files[0]} is gone"
    known = found.details.get(SAVED) == fingerprint_files(files)
    return "" if known else f"{files[0]} is another's"


def note_saved(folder: Path, path: str) -> None:
    """Write beside a fusion what it saved elsewhere, to know it again."""
    record = read_record(folder)
    if record is not None:
        saved = {SAVED: fingerprint_files(learned_files(path))}
        write_record(folder, record.model_copy(update={"details": record.details | saved}))


def _places(folder: Path, name: str) -> tuple[Path, Path, Path]:
    """Where a model lies, where a new one is made, and where the old one waits to go."""
    models = folder / "models"
    return models / name, models / f".{name}.anew", models / f".{name}.before"


@contextmanager
def room_for(folder: Path, name: str) -> Iterator[Path]:
    """A free place to make a model in; afterwards it stands in its own place, whole."""
    target, anew, before = _places(folder, name)
    shutil.rmtree(anew, ignore_errors=True)
    if not target.exists():
        yield target
    else:
        yield anew
        _replace(target, anew, before)
        remove_leftovers(target)  # of a killed run, which was making the model that had to go
    shutil.rmtree(before, ignore_errors=True)


def put_in_place(folder: Path, verdict: Verdict) -> None:
    """Finish what a killed run had begun: the model that is asked for takes its place."""
    target, anew, before = _places(folder, verdict.name)
    if verdict.where == anew:
        _replace(target, anew, before)
    elif verdict.where == before:
        shutil.rmtree(target, ignore_errors=True)
        os.replace(before, target)
    shutil.rmtree(anew, ignore_errors=True)
    shutil.rmtree(before, ignore_errors=True)
    for place in (target, anew):
        remove_leftovers(place)


def _replace(target: Path, anew: Path, before: Path) -> None:
    # A folder cannot replace a full one in a single step. Between the two, the old and the new are
    # both there under other names, and the next run puts the right one in place.
    if target.exists():
        shutil.rmtree(before, ignore_errors=True)
        os.replace(target, before)
    os.replace(anew, target)


def record_of(order: Order) -> Record:
    """The record that a model made by this order would have."""
    from stockpot.fuse.record import fusion_record
    from stockpot.harden.record import hardening_record
    from stockpot.season.record import seasoning_record

    if order.verb == "fuse":
        return fusion_record(order.method, *order.inputs, **order.settings)
    if order.verb == "harden":
        return hardening_record(order.method, *order.inputs, **order.settings)
    if order.verb == "season":
        return seasoning_record(order.method, *order.inputs, **order.settings)
    if order.verb == "tune":
        from stockpot.tune.question import tuning_record

        return tuning_record(order.method, *order.inputs, **order.settings)
    from stockpot.models.new import new_record

    return new_record(order.method, *order.inputs, **order.settings)
