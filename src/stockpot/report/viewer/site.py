"""`stockpot view`: the files of a viewer, written beside their place and moved there whole."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stockpot.errors import UserError
from stockpot.report.design import render_page
from stockpot.report.viewer.chunks import packed, write_chunk
from stockpot.report.viewer.collect import Column, ImageSet, Shown, collect
from stockpot.report.viewer.sheets import ACROSS, Pictures, told_apart, write_sheets
from stockpot.results.provenance import package_version
from stockpot.results.schema import CellResult
from stockpot.stages import stage

BESIDE = (
    "default-src 'none'; script-src 'unsafe-inline' 'self' file:; img-src 'self' file: data:; "
    "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)
"""What a browser may load for the page: the files of its folder."""
MARK = "stockpot-view.json"
"""By which a folder is known to be a viewer, and may be replaced by the next one."""
Find = Callable[[ImageSet], "Pictures | str"]
"""Gives the pictures of a set, or a sentence that says why there are none."""


@dataclass(frozen=True)
class Limits:
    """How many pictures a site holds for each set at most; all answers are in it in any case."""

    originals: int = 2000
    changed: int = 1000
    """Pictures under corruptions and attacks, shared out among the conditions."""


def no_pictures(images: ImageSet) -> str:
    """For a site of names and answers alone."""
    return "no pictures were asked for"


def write_site(
    files: Sequence[Path],
    out: str | Path,
    *,
    title: str = "Stockpot viewer",
    find: Find = no_pictures,
    limits: Limits | None = None,
) -> Path:
    """Write a viewer of these result files; returns its first page.

    Args:
        files: result files; per-image records beside them are read too.
        out: the folder of the site; another viewer there is replaced, anything else is refused.
        title: of the page.
        find: where the pictures of a set come from.
        limits: how many of them.
    """
    target = Path(out)
    if target.exists() and not (target / MARK).is_file() and any(target.iterdir()):
        raise UserError(
            f"{target} holds something else than a viewer.", hint="Choose another folder with -o."
        )
    with stage("load"):
        sets = collect(files)
    if not sets:
        raise UserError(
            "these results say nothing of single images.",
            hint="Measure with clean, corruption, adversarial, shift, ... and --log-samples.",
        )
    staged = target.parent / f".{target.name}.{os.getpid()}.tmp"
    shutil.rmtree(staged, ignore_errors=True)
    try:
        staged.mkdir(parents=True)
        with stage("write"):
            shown = [
                _write_set(staged, n, each, find, limits or Limits()) for n, each in enumerate(sets)
            ]
        about = {"title": title, "sets": shown, "version": package_version("stockpot")}
        write_chunk(staged / "data", "index", about)
        page = render_page(
            "viewer.html.j2", title=title, package="stockpot.report.viewer", policy=BESIDE
        )
        (staged / "index.html").write_text(page, encoding="utf-8")
        (staged / MARK).write_text(json.dumps({"version": 1}) + "\n")
        shutil.rmtree(target, ignore_errors=True)
        staged.rename(target)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return target / "index.html"


def _write_set(
    site: Path, number: int, images: ImageSet, find: Find, limits: Limits
) -> dict[str, Any]:
    data = site / "data"
    with stage("load"):
        source = find(images)
    pictures, why = (None, source) if isinstance(source, str) else (source, "")
    if pictures is not None and images.labels is None:
        images.labels = images.names.codes_of(pictures.labels())
    if pictures is not None and images.images is None:
        images.images = pictures.names()
    models, conditions = images.models, list(images.conditions.values())
    for m, model in enumerate(models):
        bits = {
            str(c): packed(shown.columns[model].correct)
            for c, shown in enumerate(conditions)
            if model in shown.columns
        }
        write_chunk(data, f"{number}/right-{m}", bits)
        for c, shown in enumerate(conditions):
            column = shown.columns.get(model)
            if column is not None and column.predictions is not None:
                write_chunk(data, f"{number}/said-{m}-{c}", _said(column))
    if images.images is not None:
        write_chunk(data, f"{number}/names", images.images)
    if images.labels is not None:
        write_chunk(data, f"{number}/labels", packed(images.labels))
    sheets = _write_pictures(site, number, images, pictures, limits) if pictures else {}
    return {
        "title": images.title,
        "n": images.n,
        "models": models,
        "classes": list(images.names),
        "labelled": images.labels is not None,
        "named": images.images is not None,
        "conditions": [_about(shown, models) for shown in conditions],
        "pictures": sheets,
        "across": ACROSS,
        "why": why,
    }


def _about(shown: Shown, models: Sequence[str]) -> dict[str, Any]:
    about = shown.about
    return {
        "id": shown.id,
        "title": shown.title,
        "kind": about.kind,
        "corruption": about.corruption,
        "severity": about.severity,
        "usual": shown.id == shown.record,
        # 0: not measured, 1: right or wrong is known, 2: answers are known too.
        "known": [_known(shown.columns.get(model)) for model in models],
    }


def _known(column: Column | None) -> int:
    if column is None:
        return 0
    return 1 if column.predictions is None else 2


def _said(column: Column) -> list[str]:
    sure = column.confidence
    if sure is None:
        sure = np.full(len(column.correct), 255, dtype=np.uint8)
    return [packed(np.asarray(column.predictions)), packed(sure)]


def _write_pictures(
    site: Path, number: int, images: ImageSet, pictures: Pictures, limits: Limits
) -> dict[str, Any]:
    """Sheets by condition (`original` for the images as they are): rows, and the squares' side.

    A corrupted picture is the same for all models; an attacked one is each model's own.
    """
    found: dict[str, Any] = {}
    conditions = list(images.conditions.values())
    rows = told_apart(images, conditions, limits.originals)
    if rows:
        folder = site / "pictures" / str(number) / "original"
        found["original"] = {"rows": rows, "side": write_sheets(folder, pictures.original(rows))}
    changed: dict[str, tuple[Shown, CellResult]] = {}
    for c, shown in enumerate(conditions):
        if shown.about.kind == "corruption":
            changed[str(c)] = shown, next(iter(shown.cells.values()))
        elif shown.about.kind == "attack":
            own = {images.models.index(model): cell for model, cell in shown.cells.items()}
            changed |= {f"{c}-{m}": (shown, cell) for m, cell in own.items()}
    share = limits.changed // max(1, len(changed))
    for name, (shown, cell) in changed.items() if share else ():
        chosen = told_apart(images, [shown], share)
        made = pictures.under(cell, shown.record, chosen)
        if made is not None:
            folder = site / "pictures" / str(number) / name
            found[name] = {"rows": chosen, "side": write_sheets(folder, made)}
    return found
