"""One self-contained HTML file: no server, no network, nothing beside it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from stockpot.charts import page_colours
from stockpot.files import write_atomic
from stockpot.report.audits import audit_sections
from stockpot.report.galleries import galleries
from stockpot.report.robustness import robust_sections
from stockpot.report.scatter import Axes, scatter_section
from stockpot.report.sections import (
    MOST_COMPARED,
    class_tables,
    comparisons,
    corruption_sections,
    filled,
    leaderboards,
    run_details,
)
from stockpot.report.stages import stage_shares
from stockpot.report.tasks import sweep_sections, task_sections
from stockpot.report.unknowns import unknown_sections
from stockpot.results.headline import format_score
from stockpot.results.provenance import package_version
from stockpot.results.schema import CellResult
from stockpot.results.store import load_results


def report(
    results: str | Path | Sequence[CellResult], out: str | Path, *, title: str = "Stockpot report"
) -> Path:
    """Write a page from results, or from the run folder that holds them."""
    cells = load_results(results) if isinstance(results, str | Path) else results
    figures = run_figures(results) if isinstance(results, str | Path) else []
    return write_page(cells, Path(out), title=title, figures=figures)


def write_page(
    results: Sequence[CellResult],
    out: Path,
    *,
    title: str,
    subtitle: str = "",
    axes: Sequence[Axes] = (),
    figures: Sequence[Path] = (),
) -> Path:
    """Render and write the page; an old one is replaced in one step."""
    page = render(results, title=title, subtitle=subtitle, axes=axes, figures=figures)
    write_atomic(out, page)
    return out


@cache
def _environment() -> Environment:
    # One for all pages: it keeps the templates that it has compiled.
    return Environment(
        loader=PackageLoader("stockpot.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(
    results: Sequence[CellResult],
    *,
    title: str,
    subtitle: str = "",
    axes: Sequence[Axes] = (),
    figures: Sequence[Path] = (),
) -> str:
    """The page as text; the same results give the same page."""
    values: dict[str, Any] = {
        "title": title,
        "subtitle": subtitle,
        "boards": leaderboards(results),
        "task_sections": task_sections(results),
        "sweeps": sweep_sections(results),
        "figures": [figure(path) for path in figures],
        "scatters": [found for pair in axes if (found := scatter_section(results, pair))],
        "robust_sections": robust_sections(results),
        "audits": audit_sections(results),
        "unknowns": unknown_sections(results),
        "comparisons": comparisons(results),
        "corruptions": corruption_sections(results),
        "class_tables": class_tables(results),
        "galleries": galleries(results),
        "stages": stage_shares(results),
        "details": run_details(results),
        "models": len({result.key.model for result in results}),
        "cells": len(results),
        "made": max((result.provenance.created for result in results), default=""),
        "most_compared": MOST_COMPARED,
        "version": package_version("stockpot"),
        "format_score": format_score,
        "filled": filled,
        "colours": Markup(page_colours()),
    }
    return _environment().get_template("page.html.j2").render(values)


class Figure(NamedTuple):
    """A picture and what it is called."""

    title: str
    picture: Markup


def run_figures(folder: str | Path) -> list[Path]:
    """The pictures of a run folder, by name."""
    return sorted((Path(folder) / "figures").glob("*.svg"))


def figure(path: Path) -> Figure:
    """A picture as an image element; as an image, whatever the file holds runs no script."""
    title = path.stem.replace("_", " ").capitalize()
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    picture = f'<img class="figure" alt="{escape(title)}" src="data:image/svg+xml;base64,{data}">'
    return Figure(title, Markup(picture))
