"""Whether a submission may go on a board: its form, its files, its numbers, its audit, who vouches.

Everything is told from the folder alone. What fails keeps a submission off; what is only noted is
shown beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from stockpot.board.submission import Submission, read_submission
from stockpot.errors import UserError
from stockpot.measure.dynamic.board import MIN_VALIDITY, rulings
from stockpot.measure.rescore import rescored
from stockpot.results.manifest import read_manifest
from stockpot.results.migration import VERSION
from stockpot.results.schema import CellResult
from stockpot.results.signing import verify
from stockpot.results.store import digest, read_result, result_files
from stockpot.results.trust import UNAUDITED, audited_notes, worst_of

State = Literal["holds", "noted", "broken"]
_NEAR = 1e-6
_CHANGED = 5
"""Scores that a message lists at most."""


class Checked(NamedTuple):
    """One rule for one folder."""

    rule: str
    state: State
    why: str = ""


def check_submission(folder: Path, *, signed: bool = True) -> list[Checked]:
    """Every rule, in the order in which they are told.

    Args:
        folder: a run folder with `submission.yaml` beside its results.
        signed: whether it must be.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: expected the folder of a submission.")
    try:
        form = read_submission(folder)
    except UserError as problem:
        form, found = None, [Checked("form", "broken", str(problem))]
    else:
        missing = "there is no submission.yaml; see `stockpot leaderboard --template FOLDER`"
        found = [Checked("form", "holds") if form else Checked("form", "broken", missing)]
    try:
        paths = result_files(folder)
        cells = [read_result(path) for path in paths]
    except UserError as problem:
        found.append(Checked("protocol version", "broken", str(problem)))
        return [*found, _signature(folder, form, signed=signed)]
    found.append(_version(paths, cells))
    found.append(_named_models(form, cells))
    found.append(_files(folder, paths, cells))
    found.append(_numbers(cells))
    found.append(_identities(cells))
    found.append(_audit(cells))
    found.append(_flags(cells))
    found += _dynamic(cells)
    found.append(_signature(folder, form, signed=signed))
    return found


def _version(paths: Sequence[Path], cells: Sequence[CellResult]) -> Checked:
    rule = "protocol version"
    old = sum(f'"schema_version": {VERSION}' not in path.read_text()[:200] for path in paths)
    if old:
        why = f"{old} of {len(paths)} results are of an older version and are read as version"
        return Checked(rule, "noted", f"{why} {VERSION}")
    dirty = {cell.provenance.commit[:10] for cell in cells if cell.provenance.dirty}
    if dirty:
        why = f"measured by changed code (commit {', '.join(sorted(dirty))} with local changes)"
        return Checked(rule, "noted", why)
    return Checked(rule, "holds")


def _named_models(form: Submission | None, cells: Sequence[CellResult]) -> Checked:
    known = {cell.key.model for cell in cells}
    unknown = sorted(set(form.models) - known) if form else []
    if unknown:
        why = f"submission.yaml tells of {', '.join(unknown)}, and the results are of "
        return Checked("models", "broken", why + ", ".join(sorted(known)))
    return Checked("models", "holds")


def _files(folder: Path, paths: Sequence[Path], cells: Sequence[CellResult]) -> Checked:
    """A result's file name carries the digest of its question; the manifest names all files."""
    rule = "hashes of questions"
    for path, cell in zip(paths, cells, strict=True):
        if not path.stem.endswith(f"--{digest(cell.key)}"):
            return Checked(rule, "broken", f"{path.name} is not named after the question it holds")
    manifest = read_manifest(folder)
    lost = sorted(manifest.present - {path.name for path in paths}) if manifest else []
    if lost:
        why = f"{len(lost)} results of run.json are missing ({lost[0]}, ...)"
        return Checked(rule, "broken", why)
    return Checked(rule, "holds")


def _numbers(cells: Sequence[CellResult]) -> Checked:
    """Scores must be what the record of each image says."""
    rule = "scores from outcomes"
    wrong, without = [], []
    for cell in cells:
        if not cell.outcomes:
            without.append(cell.key.measure)
            continue
        again, _, _ = rescored(cell)
        wrong += [
            f"{cell.key.model} {new.metric}: {old.value:.4f} is said, {new.value:.4f} is recorded"
            for old, new in zip(cell.scores, again.scores, strict=True)
            if abs(old.value - new.value) > _NEAR
        ]
    if wrong:
        more = f" and {len(wrong) - _CHANGED} more" if len(wrong) > _CHANGED else ""
        return Checked(rule, "broken", "; ".join(wrong[:_CHANGED]) + more)
    if without:
        why = f"no record of single images: {', '.join(sorted(set(without)))}"
        return Checked(rule, "noted", why)
    return Checked(rule, "holds")


def _identities(cells: Sequence[CellResult]) -> Checked:
    """One name, one content: of models, and of splits of data."""
    rule = "fingerprints"
    contents: dict[tuple[str, str], set[str]] = {}
    for cell in cells:
        if not cell.model.fingerprint or not cell.data.fingerprint:
            return Checked(rule, "broken", f"{cell.key.model} x {cell.key.measure} has none")
        contents.setdefault(("model", cell.key.model), set()).add(cell.model.fingerprint)
    for (what, name), prints in contents.items():
        if len(prints) > 1:
            return Checked(rule, "broken", f"the {what} {name} has {len(prints)} contents")
    return Checked(rule, "holds")


def _audit(cells: Sequence[CellResult]) -> Checked:
    rule = "audit"
    attacked = [cell for cell in cells if UNAUDITED in cell.notes]
    bare = sorted({c.key.model for c in attacked if UNAUDITED in audited_notes(c, cells)})
    if bare:
        why = f"attacked and not audited: {', '.join(bare)}; run `stockpot audit MODEL -o FOLDER`"
        return Checked(rule, "broken", why)
    verdicts: dict[str, str] = {}
    for cell in cells:
        if cell.findings and (verdict := worst_of(cell.findings)) != "cleared":
            verdicts[cell.key.model] = verdict
    if verdicts:
        why = ", ".join(f"{model} is {verdict}" for model, verdict in sorted(verdicts.items()))
        return Checked(rule, "broken", why)
    return Checked(rule, "holds")


def _flags(cells: Sequence[CellResult]) -> Checked:
    raised = [f"{c.key.model} x {c.key.measure}: {f.name}" for c in cells for f in c.flags]
    if raised:
        return Checked("flags", "noted", "; ".join(raised[:_CHANGED]))
    return Checked("flags", "holds")


def _dynamic(cells: Sequence[CellResult]) -> Iterator[Checked]:
    for one in rulings(cells, MIN_VALIDITY):
        state: State = "holds" if one.holds else "broken"
        yield Checked(f"dynamic: {one.rule}", state, "" if one.holds else f"{one.model}: {one.why}")


def _signature(folder: Path, form: Submission | None, *, signed: bool) -> Checked:
    try:
        verify(folder, form.key if form and form.key else None)
    except UserError as problem:
        state: State = "broken" if signed or "is not signed" not in str(problem) else "noted"
        return Checked("signature", state, str(problem))
    return Checked("signature", "holds")
