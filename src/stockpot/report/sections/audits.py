"""Audits: the verdict, what each check found, and the curves that an honest model has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from stockpot.charts import Spot, lines
from stockpot.report.design import Cell, Column, table
from stockpot.results.schema import CellResult, Finding, Score
from stockpot.results.trust import worst_of


class AuditSection(NamedTuple):
    """One audit of one model."""

    model: str
    data: str
    threat: str
    verdict: str
    facts: str
    findings: list[Finding]
    rules: list[str]
    charts: list[Markup]

    @property
    def table(self) -> Markup:
        """What each check found, with the rule that judged it."""
        heads = [Column("check", number=False), Column("verdict", number=False), Column("images"),
                 Column("of"), Column("what speaks against it", number=False)]  # fmt: skip
        body = [
            [Cell(f.name.replace("_", " "), title=f.rule), Cell(f.verdict),
             Cell(str(f.count), f.count), Cell(str(f.of), f.of), Cell(f.words if f.count else "")]
            for f in self.findings
        ]  # fmt: skip
        return table(f"audit-{self.model}-{self.data}-{self.threat}", heads, body, search=False)


def audit_sections(results: Sequence[CellResult]) -> list[AuditSection]:
    """One section for every audit."""
    return [_section(cell) for cell in results if cell.findings]


def _section(cell: CellResult) -> AuditSection:
    score = cell.score("audited_accuracy")
    threat = f"{score.condition['norm']} {score.condition['eps']}"
    facts = (
        f"{score.n} images, {cell.cost.images:,} forward passes: {cell.cost.images / score.n:.0f} "
        f"for each; {100 * score.value:.1f} % withstood all of them."
    )
    named: dict[str, list[str]] = {}
    for finding in cell.findings:
        named.setdefault(finding.rule, []).append(finding.name.replace("_", " "))
    rules = [f"{', '.join(names)}: {rule}" for rule, names in named.items()]
    charts = [
        _chart(cell, "probe_accuracy", "eps", "radius", "accuracy", "%"),
        _chart(cell, "probe_loss", "eps", "radius", "highest loss", "nats"),
        _chart(cell, "probe_accuracy", "steps", "gradient steps", "accuracy", "%"),
    ]
    return AuditSection(
        cell.key.model, cell.key.data, threat, worst_of(cell.findings), facts,
        sorted(cell.findings, key=lambda finding: finding.verdict == "cleared"), rules,
        [chart for chart in charts if chart],
    )  # fmt: skip


def _chart(
    cell: CellResult, metric: str, curve: str, across: str, up: str, unit: str
) -> Markup | None:
    """One curve; radii and steps grow by factors, so each has the same room."""
    found = [s for s in cell.scores if s.metric == metric and s.condition["curve"] == curve]
    if len(found) < 2:
        return None
    spots = [Spot(float(x), s.value, s.ci_low, s.ci_high) for x, s in enumerate(found)]
    marks = [(float(x), _place(score, curve)) for x, score in enumerate(found)]
    return Markup(
        lines({up: spots}, across=across, up=up, marks=marks, unit=unit, height=300).inline()
    )


def _place(score: Score, curve: str) -> str:
    value = score.condition[curve]
    return f"{value:.4g}" if isinstance(value, float) else str(value)
