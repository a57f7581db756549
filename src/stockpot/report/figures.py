"""Pictures of results as files of their own: SVG, or PDF for papers."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from stockpot.charts import Canvas, Mark, Spot, lines, whiskers
from stockpot.errors import MissingDependencyError, UserError
from stockpot.files import write_atomic
from stockpot.report.design.table import slug
from stockpot.results.headline import format_score, headline_columns, headline_rows
from stockpot.results.named_apart import answers_apart
from stockpot.results.schema import CellResult, Score
from stockpot.results.score_tables import corruption_tables
from stockpot.results.summary.comparable import Comparable, comparable

FigureFormat = Literal["svg", "pdf"]


def write_figures(
    results: Sequence[CellResult],
    out: str | Path,
    *,
    format: FigureFormat = "svg",
    others: Sequence[Path] = (),
) -> list[Path]:
    """Write every picture that these results give, and say which files were written.

    Args:
        results: what to draw.
        out: a folder.
        format: `svg`, or `pdf` (needs 'stockpot[pdf]').
        others: pictures of runs (SVG) that go with them.
    """
    drawn = {name: canvas.svg() for name, canvas in figures(results).items()}
    drawn |= {path.stem: path.read_text(encoding="utf-8") for path in others}
    if not drawn:
        raise UserError("these results hold nothing to draw: one score of one model is a number.")
    written = []
    for name, text in drawn.items():
        path = Path(out) / f"{name}.{format}"
        write_atomic(path, text if format == "svg" else as_pdf(text))
        written.append(path)
    return written


def figures(results: Sequence[CellResult]) -> dict[str, Canvas]:
    """The pictures by name: models beside each other, errors over severities, robustness over
    radii; each where the results have it."""
    found: dict[str, Canvas] = {}
    for group in comparable(answers_apart(results)):
        name = slug(" ".join((group.data, group.measure, group.apart)))[:80]
        for column, canvas in _beside_each_other(group):
            found[f"{name}-{slug(column)}"] = canvas
        if severities := _over_severities(group):
            found[f"{name}-severities"] = severities
        for norm, canvas in _over_radii(group).items():
            found[f"{name}-{slug(norm)}-radii"] = canvas
    return found


def _beside_each_other(group: Comparable) -> list[tuple[str, Canvas]]:
    columns = headline_columns(group.cells)
    rows = headline_rows(group.cells, columns)
    made = []
    for at, column in enumerate(columns):
        scores = {model: row[at].score for model, row in rows.items()}
        marks = [_mark(model, s) for model, s in scores.items() if s and s.unit == "fraction"]
        if len(marks) > 1:
            title = f"{group.data}: {column.title}"
            made.append((column.title, whiskers(marks, title=title)))
    return made


def _mark(model: str, score: Score) -> Mark:
    low = score.value if score.ci_low is None else score.ci_low
    high = score.value if score.ci_high is None else score.ci_high
    return Mark(model, score.value, low, high, format_score(score, interval=False))


def _over_severities(group: Comparable) -> Canvas | None:
    """The mean error over corruptions at each severity."""
    drawn = {}
    for grid in corruption_tables(group.cells):
        spots = []
        for at, severity in enumerate(grid.severities):
            known = [s.value for _, scores, _ in grid.rows if (s := scores[at]) is not None]
            spots.append(Spot(float(severity), sum(known) / len(known)))
        if len(spots) > 1:
            drawn[grid.model] = spots
    if not drawn:
        return None
    up = "mean error over corruptions"
    return lines(drawn, across="severity", up=up, title=f"{group.data}: {up} by severity")


def _over_radii(group: Comparable) -> dict[str, Canvas]:
    """Accuracy under attack over its radius, for each norm with several radii."""
    found: dict[str, dict[str, list[Spot]]] = {}
    for cell in group.cells:
        for score in cell.scores:
            if score.metric == "robust_accuracy" and "norm" in score.condition:
                radius = _number(str(score.condition.get("eps", "")))
                own = found.setdefault(str(score.condition["norm"]), {})
                if radius is not None:
                    spot = Spot(radius, score.value, score.ci_low, score.ci_high)
                    own.setdefault(cell.key.model, []).append(spot)
    return {
        norm: lines(
            {model: sorted(spots) for model, spots in own.items()},
            across=f"radius ({norm})",
            up="accuracy under attack",
        )
        for norm, own in found.items()
        if any(len(spots) > 1 for spots in own.values())
    }


def _number(text: str) -> float | None:
    """`8/255` as a number."""
    above, _, below = text.partition("/")
    try:
        return float(above) / float(below or 1)
    except (ValueError, ZeroDivisionError):
        return None


def as_pdf(svg: str) -> bytes:
    """A picture as a PDF page of its own size, in the light look, with text that stays text."""
    try:
        from reportlab.graphics import renderPDF
        from svglib.svglib import svg2rlg
    except ImportError as problem:
        raise MissingDependencyError(
            f"PDF needs the package svglib ({problem}).", hint="pip install 'stockpot[pdf]'"
        ) from problem
    # Fonts of a PDF are named; and no screen of it is dark.
    plain = re.sub(r"<style>.*?</style>", "", svg, flags=re.DOTALL)
    plain = plain.replace("system-ui,sans-serif", "Helvetica")
    drawing = svg2rlg(io.BytesIO(plain.encode()))
    if drawing is None:
        raise UserError("a picture cannot be read as SVG.")
    page: bytes = renderPDF.drawToString(drawing)
    return page
