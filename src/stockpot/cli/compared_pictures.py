"""Images on which two models differ, for the page of a comparison."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from stockpot.errors import BadDataError

if TYPE_CHECKING:
    from torch import Tensor

    from stockpot.datasets.dataset import Dataset
    from stockpot.report.comparison.page import Shown
    from stockpot.results.compare import Comparison
    from stockpot.results.paired.changes import Change, Changes
    from stockpot.results.schema import DataFacts

_SIDE, _EACH, _CHANGES = 104, 4, 4


def compared_pictures(
    found: Comparison, sources: Mapping[str, str]
) -> dict[tuple[int, str], list[Shown]]:
    """For the largest changes of each score, some images that speak for them.

    Args:
        found: the comparison.
        sources: by dataset, where its images are.
    """
    known = {part.data for part in found.changes}
    if unknown := [name for name in sources if name not in known]:
        raise BadDataError(
            f"--pictures {unknown[0]}: nothing was compared on data of this name. "
            f"Known: {', '.join(sorted(known)) or 'none'}."
        )
    data = {
        part.data: _data(sources[part.data], part.facts)
        for part in found.changes
        if part.data in sources
    }
    return {
        (number, change.name): [_shown(data[part.data], part, change, row)
                                for row in change.rows[:_EACH]]
        for number, part in enumerate(found.changes)
        if part.data in data
        for change in part.changes[:_CHANGES]
    }  # fmt: skip


def _data(source: str, facts: DataFacts) -> Dataset:
    """The images of a result, or an error: others would show what nobody was asked."""
    from stockpot.datasets.load import load_dataset

    found = load_dataset(source, split=facts.split)
    if len(found) > facts.n:
        found = found.limited(facts.n)
    if found.fingerprint != facts.fingerprint:
        raise BadDataError(
            f"--pictures {source}: these are not the {facts.n} images of {facts.name} that were "
            "measured."
        )
    return found


def _shown(data: Dataset, part: Changes, change: Change, row: int) -> Shown:
    from stockpot.report.comparison.page import Shown

    batch = next(iter(data.take([row]).batches(1)))
    pixels, words = batch.images, data.classes[int(batch.labels[0])]
    if change.severity is not None:
        pixels = _corrupted(pixels, change.name, change.severity, part.seed + row)
        words = f"{words}, {change.name} {change.severity:g}"
    return Shown(_uri(pixels), f"{words} (image {row})")


def _corrupted(pixels: Tensor, name: str, severity: float, seed: int) -> Tensor:
    """As the measure made it, where the corruption is one of ours; else the image as it is."""
    from stockpot.corrupt import corruptions
    from stockpot.corrupt.apply import corrupt

    return corrupt(pixels, name, severity, seed=seed) if name in corruptions else pixels


def _uri(pixels: Tensor) -> str:
    from PIL import Image

    picture = Image.fromarray(pixels[0].permute(1, 2, 0).numpy())
    picture.thumbnail((_SIDE, _SIDE))
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    return f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode('ascii')}"


def picture_sources(given: Sequence[str] | None) -> dict[str, str]:
    """`NAME` or `NAME=SOURCE` options, by the name of the data."""
    pairs = (text.partition("=") for text in given or ())
    return {name: source or name for name, _, source in pairs}
