"""A comment for a pull request."""

from __future__ import annotations

from stockpot.gate.outcome import Checked
from stockpot.results.tables import escaped_markdown

_SIGNS = {"holds": "✅ holds", "fails": "❌ fails", "not decided": "❔ not decided"}


def markdown(checked: Checked) -> str:
    """The verdict, one row per rule, and what was looked at."""
    model = escaped_markdown(checked.model)
    against = f" against {escaped_markdown(checked.baseline)}" if checked.baseline else ""
    sign = "✅" if checked.passed else "❌"
    lines = [
        f"### {sign} {escaped_markdown(checked.name)}: {checked.summary}",
        "",
        f"{model}{against}",
        "",
        "| rule | outcome | data | what was seen |",
        "|---|---|---|---|",
    ]
    for outcome in checked.outcomes:
        row = [str(outcome.rule), "", outcome.data, outcome.words]
        cells = [escaped_markdown(text) for text in row]
        cells[1] = _SIGNS[outcome.status]
        lines.append(f"| {' | '.join(cells)} |")
    if checked.rows:
        lines += ["", f"Decided on {len(checked.rows):,} images in {len(checked.blocks)} blocks."]
    if checked.counted("not decided"):
        means = "lets the model pass" if checked.undecided == "pass" else "does not let it pass"
        lines += ["", f"A rule that is not decided {means} (`undecided: {checked.undecided}`)."]
    return "\n".join(lines) + "\n"
