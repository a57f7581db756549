"""What models do not know: detectors of foreign images, and the curves of confidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from stockpot.charts import Spot, lines
from stockpot.report.design import Cell, Column, table
from stockpot.results.headline import format_score, split_by_data
from stockpot.results.schema import CellResult, Score
from stockpot.results.score_tables import detection_tables


class DetectorRow(NamedTuple):
    """One detector on all sets: AUROC and FPR, with their intervals to point at."""

    name: str
    cells: list[tuple[str, str]]


class DetectorTable(NamedTuple):
    """One model's detectors down, foreign sets across."""

    model: str
    sets: list[str]
    rows: list[DetectorRow]

    @property
    def table(self) -> Markup:
        """The same for the page."""
        heads = [Column("detector", number=False), *map(Column, self.sets)]
        body = [[Cell(row.name), *(Cell(text, title=note) for text, note in row.cells)]
                for row in self.rows]  # fmt: skip
        return table(f"detectors-{self.model}", heads, body)


class UnknownSection(NamedTuple):
    """One dataset."""

    data: str
    tables: list[DetectorTable]
    charts: list[tuple[str, Markup]]


class _Curve(NamedTuple):
    metric: str
    across: str
    """The item of the condition that runs from left to right."""
    up: str
    words: str


_CURVES = (
    _Curve("bin_accuracy", "confidence", "accuracy", "Reliability: equal is calibrated"),
    _Curve("selective_accuracy", "coverage", "accuracy", "Accuracy of the surest answers"),
    _Curve("certified_accuracy", "radius", "certified accuracy", "Certified l2 radius"),
)


def unknown_sections(results: Sequence[CellResult]) -> list[UnknownSection]:
    """A section for every dataset on which one of these measures ran."""
    found = []
    for data, cells in split_by_data(results).items():
        tables = [
            DetectorTable(
                one.model,
                one.sets,
                [DetectorRow(name, [_shown(*both) for both in row]) for name, row in one.rows],
            )
            for one in detection_tables(cells)
        ]
        charts = [(curve.words, chart) for curve in _CURVES if (chart := _chart(cells, curve))]
        if tables or charts:
            found.append(UnknownSection(data, tables, charts))
    return found


def _shown(auroc: Score | None, fpr: Score | None) -> tuple[str, str]:
    if auroc is None or fpr is None:
        return "-", ""
    text = f"{100 * auroc.value:.1f} ({100 * fpr.value:.1f})"
    return text, f"AUROC {format_score(auroc)}, FPR {format_score(fpr)}"


def _chart(cells: Sequence[CellResult], curve: _Curve) -> Markup | None:
    drawn: dict[str, list[Spot]] = {}
    for cell in cells:
        for score in cell.scores:
            if score.metric == curve.metric and curve.across in score.condition:
                kept = ("scaling", "sigma")
                told = [str(score.condition[key]) for key in kept if key in score.condition]
                name = " ".join([cell.key.model, *told])
                x = float(str(score.condition[curve.across]))
                spot = Spot(x, score.value, score.ci_low, score.ci_high)
                drawn.setdefault(name, []).append(spot)
    drawn = {name: sorted(spots) for name, spots in drawn.items() if len(spots) > 1}
    if not drawn:
        return None
    if curve.across == "confidence":
        drawn["calibrated"] = [Spot(0.0, 0.0), Spot(1.0, 1.0)]
    return Markup(lines(drawn, across=curve.across, up=curve.up, title=curve.words).inline())
