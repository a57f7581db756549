"""Results of many folders brought together: who contends, and with which answers.

A model is known by its name, the content of its weights and what was put around them, so that two
people's `resnet50` stay two. The same question answered twice counts once: the later answer does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from stockpot.board.submission import AboutModel, Submission, read_submission
from stockpot.errors import UserError
from stockpot.report.design.table import slug
from stockpot.results.schema import CellResult, ModelFacts, Verdict
from stockpot.results.signing import SIGNATURE, verify
from stockpot.results.store import digest, load_results
from stockpot.results.trust import worst_of

_MEASURED_TIMES = {"seconds", "bytes", "per_second"}


@dataclass(frozen=True)
class Folder:
    """One person's results."""

    path: Path
    about: Submission | None
    signed: str
    """The public key that signed it; empty where none did."""
    cells: Sequence[CellResult]


@dataclass
class Contender:
    """One model with all that was measured of it."""

    name: str
    slug: str
    facts: ModelFacts
    options: dict[str, Any]
    about: AboutModel
    authors: list[str]
    licence: str
    cells: list[CellResult] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    """The public keys of the signed folders that its results come from."""
    unsigned: bool = False
    notes: list[str] = field(default_factory=list)

    @cached_property
    def audit(self) -> Verdict | None:
        """The verdict of its audits together; none where it has none."""
        findings = [finding for cell in self.cells for finding in cell.findings]
        return worst_of(findings) if findings else None


def run_folders(sources: Sequence[str | Path]) -> list[Path]:
    """Folders with results: those given, or what lies in them where they only hold others."""
    found: list[Path] = []
    for source in map(Path, sources):
        if not source.is_dir():
            raise UserError(f"{source}: expected a folder with results, or one of such folders.")
        inner = sorted(path for path in source.iterdir() if (path / "results").is_dir())
        if (source / "results").is_dir() or not inner:
            inner = [source]
        found += inner
    return list({path.resolve(): path for path in found}.values())


def gather(sources: Sequence[str | Path]) -> list[Contender]:
    """All models of all folders; a folder whose signature is false is refused."""
    folders = []
    for path in run_folders(sources):
        signed = verify(path).key if (path / SIGNATURE).is_file() else ""
        folders.append(Folder(path, read_submission(path), signed, load_results(path)))
    return contenders(folders)


def contenders(folders: Sequence[Folder]) -> list[Contender]:
    """The models of these folders, with one answer to each question."""
    found: dict[str, Contender] = {}
    answers: dict[str, dict[str, CellResult]] = {}
    for folder in folders:
        for cell in folder.cells:
            identity = _identity(cell)
            if identity not in found:
                found[identity] = _contender(cell, identity, folder.about)
            one = found[identity]
            one.unsigned |= not folder.signed
            if folder.signed and folder.signed not in one.keys:
                one.keys.append(folder.signed)
            own, question = answers.setdefault(identity, {}), digest(cell.key)
            own[question] = _later(own.get(question), cell, one, folder.path)
    for identity, own in answers.items():
        found[identity].cells.extend(own.values())
    _tell_apart(list(found.values()))
    return sorted(found.values(), key=lambda one: (one.name.lower(), one.slug))


def _identity(cell: CellResult) -> str:
    key = cell.key
    about = (key.model, key.model_fingerprint or cell.model.fingerprint, key.model_options)
    return json.dumps([*about, cell.model.architecture], sort_keys=True, default=str)


def _contender(cell: CellResult, identity: str, form: Submission | None) -> Contender:
    about = form.model(cell.key.model) if form else AboutModel()
    mark = hashlib.sha256(identity.encode()).hexdigest()[:6]
    name = about.title or cell.key.model
    return Contender(
        name=name,
        slug=f"{slug(name)[:60]}-{mark}",
        facts=cell.model,
        options=cell.key.model_options,
        about=about,
        authors=form.authors if form else [],
        licence=form.licence if form else "",
    )


def _later(
    known: CellResult | None, cell: CellResult, contender: Contender, folder: Path
) -> CellResult:
    """The later of two answers; where they differ, the model's page says so."""
    if known is None:
        return cell
    first, second = sorted((known, cell), key=lambda one: one.provenance.created)
    apart = [
        f"{new.metric} {old.value:.4g} -> {new.value:.4g}"
        for old, new in zip(first.scores, second.scores, strict=False)
        if old.unit not in _MEASURED_TIMES and old.value != new.value
    ]
    if apart:
        contender.notes.append(
            f"{cell.key.measure} on {cell.key.data} was answered twice, differently "
            f"({', '.join(apart[:3])}); the later answer counts"
        )
    return second


def _tell_apart(models: Sequence[Contender]) -> None:
    """Models that share a name get the beginning of their fingerprint behind it."""
    by_name: dict[str, list[Contender]] = {}
    for model in models:
        by_name.setdefault(model.name, []).append(model)
    for same in by_name.values():
        prints = {model.facts.fingerprint for model in same}
        for model in same if len(same) > 1 else ():
            mark = model.facts.fingerprint[:8] if len(prints) == len(same) else model.slug[-6:]
            model.name = f"{model.name} ({mark})"
