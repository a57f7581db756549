"""Pictures that results carry: an image, what was made of it, and what was said of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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


def galleries(results: Sequence[CellResult]) -> list[Gallery]:
    """One gallery for every cell that brought pictures of a dynamic evaluation."""
    found = []
    for cell in results:
        exhibits = [_exhibit(picture) for picture in cell.pictures if "after" in picture.facts]
        if exhibits:
            made = cell.key.params.get("generator", "")
            found.append(Gallery(cell.key.model, cell.key.data, str(made), exhibits))
    return found


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
