"""One self-contained HTML file: no server, no network, nothing beside it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from stockpot.files import write_atomic
from stockpot.report.design import json_script, render_page
from stockpot.report.pictures import NONE, Pictures
from stockpot.report.sections.audits import audit_sections
from stockpot.report.sections.boards import boards
from stockpot.report.sections.classes import class_sections
from stockpot.report.sections.corruption import corruption_sections
from stockpot.report.sections.galleries import galleries
from stockpot.report.sections.made import made_table
from stockpot.report.sections.pairs import MOST_COMPARED, pairs_table
from stockpot.report.sections.provenance import provenance_section
from stockpot.report.sections.robustness import radius_curves, robust_sections
from stockpot.report.sections.scatter import Axes, outside_sections, scatter_section
from stockpot.report.sections.soups import soup_explorers, stored_soups
from stockpot.report.sections.stages import costs_table, stage_shares
from stockpot.report.sections.summary import summary_section
from stockpot.report.sections.sweeps import sweep_sections
from stockpot.report.sections.tasks import task_sections
from stockpot.report.sections.unknowns import unknown_sections
from stockpot.results.named_apart import answers_apart
from stockpot.results.schema import CellResult
from stockpot.results.store import load_results

_KINDS = {".svg": "svg+xml", ".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".webp": "webp"}


def report(
    results: str | Path | Sequence[CellResult],
    out: str | Path,
    *,
    title: str = "Stockpot report",
) -> Path:
    """Write a page from results, or from the run folder that holds them.

    Args:
        results: a run folder, or results.
        out: the page.
        title: of the page.
    """
    cells = load_results(results) if isinstance(results, str | Path) else results
    folders = [Path(results)] if isinstance(results, str | Path) else []
    return write_page(cells, Path(out), title=title, folders=folders)


def write_page(
    results: Sequence[CellResult],
    out: Path,
    *,
    title: str,
    subtitle: str = "",
    axes: Sequence[Axes] = (),
    folders: Sequence[Path] = (),
    pictures: Pictures = NONE,
) -> Path:
    """Render and write the page; an old one is replaced in one step.

    Args:
        results: what it is about.
        out: the page.
        title: of the page.
        subtitle: a sentence below it.
        axes: which datasets to draw against which.
        folders: run folders, whose figures and stored soups come along.
        pictures: of the data (`run/pictures.py`).
    """
    page = render(
        results, title=title, subtitle=subtitle, axes=axes, folders=folders, pictures=pictures
    )
    write_atomic(out, page)
    return out


def render(
    results: Sequence[CellResult],
    *,
    title: str,
    subtitle: str = "",
    axes: Sequence[Axes] = (),
    folders: Sequence[Path] = (),
    pictures: Pictures = NONE,
) -> str:
    """The page as text; the same results give the same page."""
    results = answers_apart(results)
    models = len({result.key.model for result in results})
    made = max((result.provenance.created for result in results), default="")
    sheets = {f"sheet-{n}": sheet for n, sheet in enumerate(pictures.corrupted.values())}
    pictured = dict(zip(pictures.corrupted, sheets, strict=True))
    asked = [found for pair in axes if (found := scatter_section(results, pair))]
    values: dict[str, Any] = {
        "summary": summary_section(results),
        "boards": boards(results),
        "corruptions": corruption_sections(results, pictured),
        "sheets": json_script("sheets", {name: one._asdict() for name, one in sheets.items()}),
        "robust_sections": robust_sections(results),
        "radii": radius_curves(results),
        "audits": audit_sections(results),
        "scatters": asked or outside_sections(results),
        "runs_drawn": any(row.runs > 1 for one in asked for row in one.rows),
        "task_sections": task_sections(results),
        "made": made_table(results, folders),
        "sweeps": sweep_sections(results),
        "figures": [figure(path) for folder in folders for path in run_figures(folder)],
        "soups": soup_explorers(stored_soups(folders)),
        "unknowns": unknown_sections(results),
        "pairs": pairs_table(results),
        "many": models > MOST_COMPARED,
        "class_sections": class_sections(results, pictures.classes),
        "galleries": galleries(results),
        "stages": stage_shares(results),
        "costs": costs_table(results),
        "provenance": provenance_section(results),
    }
    facts = f"{_counted(models, 'model')} · {_counted(len(results), 'cell')} · {made}"
    return render_page("page.html.j2", title=title, subtitle=subtitle, facts=facts, **values)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


class Figure(NamedTuple):
    """A picture and what it is called."""

    title: str
    picture: Markup


def run_figures(folder: str | Path) -> list[Path]:
    """The pictures of a run folder, by name: drawings, and relevance from `stockpot explain`."""
    found = (Path(folder) / "figures").glob("*")
    return sorted(path for path in found if path.suffix.lower() in _KINDS)


def figure(path: Path) -> Figure:
    """A picture as an image element; as an image, whatever the file holds runs no script."""
    title = path.stem.replace("_", " ").capitalize()
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    kind = _KINDS[path.suffix.lower()]
    picture = f'<img class="figure" alt="{escape(title)}" src="data:image/{kind};base64,{data}">'
    return Figure(title, Markup(picture))
