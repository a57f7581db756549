"""Pictures beside the numbers, where the data is at hand: examples under corruptions, hard classes.

Results hold no pixels of the data. Where the dataset that they name loads here, and its images are
those that were measured, a few small ones come along; else the page goes without.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stockpot.errors import UserError
from stockpot.report.pictures import Pictures, Sheet
from stockpot.report.sections.classes import WORST, class_scores, mean_accuracy
from stockpot.results.schema import CellResult

if TYPE_CHECKING:
    from torch import Tensor

    from stockpot.datasets.dataset import Dataset

_TILE = 96
_FEW = 4
_MOST_READ = 20_000


Sources = Mapping[str, Mapping[str, Any]]
"""By the names of datasets as results have them, the arguments with which they are loaded."""


def pictures_of(results: Sequence[CellResult], sources: Sources | None = None) -> Pictures:
    """Load the datasets that are here and draw what the page can show.

    Args:
        results: of the page.
        sources: where datasets come from, as a recipe says; without, those that Stockpot keeps
            itself are found by name.
    """
    sheets: dict[str, Sheet] = {}
    classes: dict[str, dict[str, list[str]]] = {}
    loaded: dict[str, Dataset | None] = {}
    for cell in results:
        wanted = bool(_corruptions(cell)) and cell.key.data not in sheets
        if not wanted and (cell.key.measure != "clean" or cell.key.data in classes):
            continue
        place = cell.data.fingerprint
        if place not in loaded:
            loaded[place] = _load(cell, (sources or {}).get(cell.key.data, {}))
        data = loaded[place]
        if data is None:
            continue
        if wanted:
            sheets[cell.key.data] = _sheet(cell, data)
        if cell.key.measure == "clean":
            beside = [c for c in results if c.key.data == cell.key.data]
            classes[cell.key.data] = _hard(beside, data)
    return Pictures(sheets, classes)


def _load(cell: CellResult, source: Mapping[str, Any]) -> Dataset | None:
    """The images that were measured; none where they are not here, or are others."""
    from stockpot.datasets.catalogue import is_present
    from stockpot.datasets.load import load_dataset

    facts = cell.data
    name = str(source.get("name", facts.name))
    # Nothing is fetched for a page, and no large set is read through for a few pictures.
    if facts.n > _MOST_READ or not (is_present(name) or Path(name).expanduser().exists()):
        return None
    asked = dict(source) or {"name": name, "split": facts.split}
    for limit in dict.fromkeys((asked.pop("limit", None), facts.n)):
        try:
            data = load_dataset(**asked, limit=limit)
        except (UserError, OSError, ValueError):
            return None
        if data.fingerprint == facts.fingerprint:
            return data
    return None


def _corruptions(cell: CellResult) -> list[tuple[str, float]]:
    if cell.key.measure != "corruption":
        return []
    found = []
    for score in cell.scores:
        severity = score.condition.get("severity")
        if score.metric == "error" and isinstance(severity, int | float):
            found.append((str(score.condition["corruption"]), float(severity)))
    return found


def _sheet(cell: CellResult, data: Dataset) -> Sheet:
    """One picture under every corruption and severity, as the measure makes them."""
    from stockpot.corrupt.apply import corrupt

    profile = cell.key.params.get("profile", "auto")
    pixels = _pixels(data, [len(data) // 2])
    tiles, places = [pixels], {"": 0}
    for name, severity in _corruptions(cell):
        try:
            tiles.append(corrupt(pixels, name, severity, seed=0, profile=profile))
        except UserError:  # stored pictures, or one that takes a part that is not here
            continue
        places[f"{name}:{severity:g}"] = len(tiles) - 1
    across = min(10, len(tiles))
    side = int(pixels.shape[-1])
    sheet = np.full((math.ceil(len(tiles) / across) * side, across * side, 3), 255, np.uint8)
    for number, tile in enumerate(tiles):
        y, x = side * (number // across), side * (number % across)
        sheet[y : y + side, x : x + side] = tile[0].permute(1, 2, 0).numpy()
    return Sheet(_encoded(sheet, "WEBP"), side, across, places)


def _hard(cells: Sequence[CellResult], data: Dataset) -> dict[str, list[str]]:
    """Pictures of the hardest classes, those first that most models get wrong."""
    known = class_scores(cells).get(cells[0].key.data, {})
    hardest = sorted(known, key=lambda name: mean_accuracy(known[name]))[:WORST]
    right = [c.outcome("correct") for c in cells
             if c.key.measure == "clean" and c.data.fingerprint == data.fingerprint]  # fmt: skip
    if not right:
        return {}
    share = np.mean(right, axis=0)
    labels = data.labels.numpy()
    found = {}
    for name in hardest:
        if name not in data.classes:
            continue
        rows = np.flatnonzero(labels == data.classes.index(name))
        rows = rows[np.argsort(share[rows], kind="stable")][:_FEW]
        pixels = _pixels(data, rows.tolist())
        found[name] = [_encoded(one.permute(1, 2, 0).numpy(), "WEBP") for one in pixels]
    return found


def _pixels(data: Dataset, rows: Sequence[int]) -> Tensor:
    """Small square pictures of these rows."""
    from PIL import Image, ImageOps

    def small(picture: Image.Image) -> Image.Image:
        return ImageOps.fit(picture.convert("RGB"), (_TILE, _TILE))

    (batch,) = data.take(rows).images.batches(len(rows), small)
    if batch.shape[-1] > _TILE or batch.shape[-1] != batch.shape[-2]:
        from torch.nn.functional import interpolate

        batch = interpolate(batch.float(), (_TILE, _TILE), mode="area").round().byte()
    return batch


def _encoded(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], kind: str) -> str:
    from PIL import Image

    stream = BytesIO()
    Image.fromarray(pixels).save(stream, format=kind, quality=82, method=4)
    return f"data:image/webp;base64,{base64.b64encode(stream.getvalue()).decode('ascii')}"
