"""Pictures that results carry: an image, what was made of it, and what was said of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from stockpot.charts import Mark, curve
from stockpot.results.schema import CellResult, Picture


class Exhibit(NamedTuple):
    """One picture with its words."""

    source: str
    """A data URI: the page stays one file."""
    label: str
    before: str
    after: str
    oracle: str
    steps: str
    fooled: bool


class Gallery(NamedTuple):
    """The pictures of one cell."""

    model: str
    data: str
    how: str
    exhibits: list[Exhibit]
    chart: Markup | None
    """How many validated images the model has got wrong by each turn of the search."""


def galleries(results: Sequence[CellResult]) -> list[Gallery]:
    """One gallery for every cell that brought pictures of a dynamic evaluation."""
    found = []
    for cell in results:
        exhibits = [_exhibit(picture) for picture in cell.pictures if "after" in picture.facts]
        if exhibits:
            made = cell.key.params.get("generator", "")
            chart = _chart(cell)
            found.append(Gallery(cell.key.model, cell.key.data, str(made), exhibits, chart))
    return found


def _chart(cell: CellResult) -> Markup | None:
    scores = [score for score in cell.scores if score.metric == "fooled"]
    points = [
        Mark(
            str(score.condition["turn"]),
            score.value,
            score.value if score.ci_low is None else score.ci_low,
            score.value if score.ci_high is None else score.ci_high,
        )
        for score in sorted(scores, key=lambda score: int(score.condition["turn"] or 0))
    ]
    if len(points) < 3:
        return None
    drawn = curve(points, across="steps of the search", up="validated images that fooled the model")
    return Markup(drawn.inline())


def _exhibit(picture: Picture) -> Exhibit:
    facts = picture.facts
    confidence = facts.get("oracle")
    return Exhibit(
        source=f"data:image/png;base64,{picture.png}",
        label=str(facts.get("label", "")),
        before=str(facts.get("before", "")),
        after=str(facts.get("after", "")),
        oracle=f"{100 * float(confidence):.0f} %" if isinstance(confidence, int | float) else "-",
        steps=str(facts.get("steps", "")),
        fooled=facts.get("before") != facts.get("after"),
    )
