"""ImageNet-X: what is unusual about each validation picture of ImageNet, said by people."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Literal

from stockpot.datasets import datasets
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.natural.imagenet import VAL
from stockpot.datasets.natural.public import Source, load_public
from stockpot.datasets.stream.file_check import OnBroken
from stockpot.errors import BadDataError

FACTORS: tuple[str, ...] = (
    *("pose", "background", "pattern", "color", "smaller", "shape", "partial_view", "subcategory"),
    *("texture", "larger", "darker", "object_blocking", "person_blocking", "style", "brighter"),
    "multiple_objects",
)
"""The sixteen, in the order in which the publication prints them."""
COLUMN = "factors"
BETWEEN = "+"


@datasets.register("imagenet_x", paper="arXiv:2211.01866")
def imagenet_x(
    *,
    path: str,
    annotations: str | None = None,
    factors: Literal["top", "multi"] = "top",
    prototypes: bool = False,
    on_broken: OnBroken = "stop",
) -> Dataset:
    """ImageNet's validation pictures with the factors of ImageNet-X in the column `factors`.

    Args:
        path: your copy of ImageNet's validation pictures, as for `imagenet`.
        annotations: the folder of ImageNet-X's files, `imagenet_x_val_top_factor.jsonl` and
            others; without it those of an installed package `imagenet-x`.
        factors: `top`: the one factor that people found most unusual; `multi`: all that they
            named.
        prototypes: whether to keep the 3000 pictures that the others were compared with.
        on_broken: what to do with files that cannot be decoded: stop and name them, or skip them.
    """
    folder = Path(annotations).expanduser() if annotations else _installed()
    told = _factors(folder / f"imagenet_x_val_{factors}_factor.jsonl")
    if not prototypes:
        typical = _typical(folder / "prototypical_paths.csv")
        told = {file: named for file, named in told.items() if file not in typical}
    data = load_public(VAL, Source(path, on_broken=on_broken), "val")
    files = [PurePosixPath(file).name for file in data.columns.get("file", ())]
    rows = [row for row, file in enumerate(files) if file in told]
    if not rows:
        raise BadDataError(
            f"imagenet_x: none of the pictures in {path} has an annotation in {folder}.",
            hint="Expected names such as ILSVRC2012_val_00000293.JPEG.",
        )
    chosen = data.take(rows)
    named = tuple(BETWEEN.join(told[files[row]]) for row in rows)
    columns = {**chosen.columns, COLUMN: named}
    return replace(chosen, name="imagenet_x", split=f"val[{factors}]", columns=columns)


def _installed() -> Path:
    found = find_spec("imagenet_x")
    if found is None or found.origin is None:
        raise BadDataError(
            "imagenet_x: its annotations are not here.",
            hint="pip install --no-deps imagenet-x, or give annotations=FOLDER.",
        )
    return Path(found.origin).parent / "annotations"


def _factors(file: Path) -> dict[str, tuple[str, ...]]:
    """The factors of each picture, by its file name."""
    if not file.is_file():
        raise BadDataError(f"imagenet_x: {file} is not there.", hint="Give annotations=FOLDER.")
    found = {}
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                entry = json.loads(line)
                named = tuple(factor for factor in FACTORS if int(entry[factor]))
                found[str(entry["file_name"])] = named
            except (ValueError, KeyError, TypeError) as problem:
                raise BadDataError(
                    f"{file}:{number}: expected file_name and the sixteen factors ({problem!r})."
                ) from None
    return found


def _typical(file: Path) -> set[str]:
    if not file.is_file():
        raise BadDataError(
            f"imagenet_x: {file} is not there.", hint="Give prototypes=true to do without."
        )
    with file.open(encoding="utf-8", newline="") as lines:
        return {row["file_name"] for row in csv.DictReader(lines)}
