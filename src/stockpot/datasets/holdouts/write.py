"""A split that one can look at: both sides as class folders, with a sheet of each.

What is written is read back as any folder of pictures: `--data FOLDER --split train`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.fetch.cache import written_whole
from stockpot.datasets.holdouts.columns import CONCEPT, STYLE, class_names
from stockpot.datasets.holdouts.metadata import write_facts
from stockpot.errors import UserError

TILE, ACROSS, DOWN = 48, 24, 12
"""A sheet has so many pictures of so many pixels."""


class Written(NamedTuple):
    """What a side holds."""

    side: str
    pictures: int
    classes: int
    concepts: int
    styles: int


def write_split(sides: Mapping[str, Dataset], out: Path) -> list[Written]:
    """Write the sides of a protocol into a new folder."""
    check_free(out)
    with written_whole(out) as folder:
        for side, data in sides.items():
            _write_side(data, folder / side)
            _sheet(data).save(folder / f"{side}.png", optimize=True)
    return [_counted(side, data) for side, data in sides.items()]


def check_free(out: Path) -> None:
    """Raise where something is in the way."""
    if out.exists():
        raise UserError(f"{out} is there already.", hint="Name another folder, or remove it.")


def _write_side(data: Dataset, folder: Path) -> None:
    names: list[str] = []
    labels = class_names(data)
    width = len(str(max(len(data) - 1, 1)))
    for row, batch in enumerate(data.batches(1)):
        facts = (data.columns.get(key, ("",) * len(data))[row] for key in (CONCEPT[0], STYLE[-1]))
        said = "-".join(_plain(fact) for fact in facts if fact)
        name = f"{labels[row].replace('/', '-')}/{row:0{width}d}{'-' + said if said else ''}.png"
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(batch.images[0].permute(1, 2, 0).numpy()).save(place)
        names.append(name)
    write_facts(folder, names, data.columns)


def _sheet(data: Dataset) -> Image.Image:
    """Pictures of every class in turn, from all over the side."""
    count = min(len(data), ACROSS * DOWN)
    rows = np.linspace(0, len(data) - 1, count).round().astype(int)
    order = np.argsort(data.labels.numpy(), kind="stable")[rows]
    sheet = Image.new("RGB", (ACROSS * TILE, -(-count // ACROSS) * TILE), "white")
    for place, batch in enumerate(data.take(order.tolist()).batches(1)):
        tile = Image.fromarray(batch.images[0].permute(1, 2, 0).numpy())
        tile.thumbnail((TILE, TILE), Image.Resampling.BICUBIC)
        sheet.paste(tile, (place % ACROSS * TILE, place // ACROSS * TILE))
    return sheet


def _counted(side: str, data: Dataset) -> Written:
    def different(names: tuple[str, ...]) -> int:
        found = next((data.columns[name] for name in names if name in data.columns), ())
        return len(set(found))

    classes = len(set(data.labels.tolist()))
    return Written(side, len(data), classes, different(CONCEPT), different(STYLE))


def _plain(text: str) -> str:
    return re.sub(r"[^\w]+", "_", text).strip("_")
