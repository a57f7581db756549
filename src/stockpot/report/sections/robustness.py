"""Clean accuracy against accuracy under attack: what robustness costs, model by model."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from markupsafe import Markup

from stockpot.charts import Spot, lines
from stockpot.report.design import Cell, Column, score_cell, table
from stockpot.report.sections.scatter import mean_of, scatter
from stockpot.results.headline import format_score, split_by_data
from stockpot.results.schema import CellResult, Score


class RobustRow(NamedTuple):
    """One numbered point in words."""

    number: int
    name: str
    clean: str
    robust: str
    scores: tuple[Score, Score]


class RobustSection(NamedTuple):
    """One dataset under one threat (or the union of several)."""

    data: str
    threat: str
    n: int
    convention: str
    chart: Markup
    rows: list[RobustRow]

    @property
    def table(self) -> Markup:
        """The points in words."""
        heads = [Column("model", number=False), Column("point"), Column("clean"),
                 Column("under attack")]  # fmt: skip
        body = [
            [Cell(row.name), Cell(str(row.number), row.number), *map(score_cell, row.scores)]
            for row in self.rows
        ]
        return table(f"robust-{self.data}-{self.threat}-{self.convention}", heads, body, most=20)


def robust_sections(results: Sequence[CellResult]) -> list[RobustSection]:
    """A chart for each dataset and threat that at least two models were attacked with.

    Models that differ in how they were attacked do not share a chart.
    """
    groups: dict[tuple[str, str, str], list[tuple[CellResult, Score]]] = {}
    for data, cells in split_by_data(results).items():
        for cell in cells:
            if cell.key.measure == "adversarial":
                score = _deciding(cell)
                key = (data, _threat(score), cell.convention)
                groups.setdefault(key, []).append((cell, score))
    return [
        _section(data, threat, convention, found)
        for (data, threat, convention), found in groups.items()
        if len(found) > 1
    ]


def _section(
    data: str, threat: str, convention: str, found: list[tuple[CellResult, Score]]
) -> RobustSection:
    ordered = sorted(found, key=lambda pair: -pair[1].value)
    points = [
        (mean_of(cell.key.model, cell.score("accuracy")), mean_of(cell.key.model, robust))
        for cell, robust in ordered
    ]
    rows = [
        RobustRow(
            number,
            cell.key.model,
            format_score(cell.score("accuracy")),
            format_score(robust),
            (cell.score("accuracy"), robust),
        )
        for number, (cell, robust) in enumerate(ordered, start=1)
    ]
    chart = Markup(scatter(points, "clean accuracy", f"accuracy under {threat}").inline())
    return RobustSection(data, threat, ordered[0][1].n, convention, chart, rows)


def _deciding(cell: CellResult) -> Score:
    """The union where there are several norms, else the one."""
    scores = {score.metric: score for score in cell.scores}
    return scores.get("union_accuracy") or scores["robust_accuracy"]


def _threat(score: Score) -> str:
    if score.metric == "union_accuracy":
        return f"the union of {score.condition['threats']}"
    return f"{score.condition['norm']} {score.condition['eps']}"


class RadiusCurve(NamedTuple):
    """Accuracy over the radius of an attack in one norm."""

    title: str
    chart: Markup


def radius_curves(results: Sequence[CellResult]) -> list[RadiusCurve]:
    """A curve for each dataset and norm that some model was attacked in at two or more radii.

    Cells that differ in more than their radii (steps, attacks) do not share a chart.
    """
    found: dict[tuple[str, str, str], dict[str, dict[float, Score]]] = {}
    for cell in results:
        if cell.key.measure == "adversarial":
            rules = {k: v for k, v in cell.key.params.items() if k not in ("norms", "eps")}
            for score in cell.scores:
                if score.metric == "robust_accuracy":
                    place = (
                        cell.key.data,
                        str(score.condition["norm"]),
                        str(sorted(rules.items())),
                    )
                    spots = found.setdefault(place, {}).setdefault(cell.key.model, {})
                    spots[float(Fraction(str(score.condition["eps"])))] = score
                    spots[0.0] = cell.score("accuracy")
    curves = []
    for (data, norm, _), models in found.items():
        drawn = {
            model: [Spot(x, s.value, s.ci_low, s.ci_high, f"{model}, {norm} {x:.4g}: "
                         f"{format_score(s)}") for x, s in sorted(spots.items())]
            for model, spots in list(models.items())[:8] if len(spots) > 2
        }  # fmt: skip
        if drawn:
            chart = lines(drawn, across=f"radius, {norm}", up="accuracy", width=760).inline()
            curves.append(RadiusCurve(f"{data}, accuracy over the radius in {norm}", Markup(chart)))
    return curves
