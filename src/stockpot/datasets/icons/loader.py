"""Loading the icons: the embedded parquet, or one built here with further styles."""

from __future__ import annotations

import io
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from importlib.resources import as_file, files
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch import Tensor

from stockpot.datasets import datasets
from stockpot.datasets.dataset import Dataset, TensorImages, pixel_fingerprint
from stockpot.datasets.icons.build import built_path
from stockpot.datasets.icons.styles import FAMILIES, STYLES
from stockpot.errors import BadParameterError, UnknownNameError, UserError

TEMPLATES = ("an icon of a {}.", "an emoji of a {}.", "a drawing of a {}.")
FACTS = ("concept", "codepoint", "style", "family", "licence", "split")


@datasets.register("icons")
def icons(
    *,
    split: Literal["train", "val", "test", "all"] = "test",
    style: str | None = None,
    family: str | None = None,
    exclude_family: str | None = None,
    classes: tuple[str, ...] | None = None,
) -> Dataset:
    """Emoji art of openly licensed design families: 50 classes, 64 px on white, embedded.

    Args:
        split: train, val or test (a concept is wholly in one of them), or all.
        style: take one drawing style only.
        family: take one design family only.
        exclude_family: leave one design family out, as in training for a style hold-out.
        classes: take these classes only, numbered in this order.
    """
    known = {entry.name: entry for entry in STYLES}
    if style is not None and style not in known:
        raise UnknownNameError("icon style", style, known)
    for chosen in (family, exclude_family):
        if chosen is not None and chosen not in FAMILIES:
            raise UnknownNameError("icon family", chosen, FAMILIES)
    table = _table(style, family)
    every = tuple(dict.fromkeys(table["class"].to_pylist()))
    for chosen in classes or ():
        if chosen not in every:
            raise UnknownNameError("icon class", chosen, every)
    classes = every if classes is None else tuple(classes)
    wanted = {"split": None if split == "all" else split, "style": style, "family": family}
    for column, value in wanted.items():
        if value is not None:
            table = table.filter(pc.equal(table[column], value))
    if classes != every:
        table = table.filter(pc.is_in(table["class"], pa.array(classes)))
    if exclude_family is not None:
        table = table.filter(pc.not_equal(table["family"], exclude_family))
    if not len(table):
        raise BadParameterError(
            f"icons: no picture has split {split!r}, style {style!r} and family {family!r} "
            f"outside family {exclude_family!r}."
        )
    number = {label: index for index, label in enumerate(classes)}
    labels = torch.tensor([number[label] for label in table["class"].to_pylist()])
    pixels = _decoded(tuple(table["image"].to_pylist()))
    licences = sorted(set(table["licence"].to_pylist()))
    return Dataset(
        name="icons",
        split=split,
        images=TensorImages(pixels),
        labels=labels,
        classes=classes,
        fingerprint=pixel_fingerprint(pixels, labels, classes),
        licence=" AND ".join(licences),
        templates=TEMPLATES,
        columns={column: tuple(table[column].to_pylist()) for column in FACTS},
    )


def _table(style: str | None, family: str | None) -> Any:
    wanted = {"style": style, "family": family}
    with as_file(files("stockpot") / "zoo" / "icons.parquet") as path:
        table = pq.read_table(path)
    if lacking := _lacking(table, wanted):
        table = pq.read_table(built_path()) if built_path().is_file() else table
        if _lacking(table, wanted):
            raise UserError(
                f"icons: {' and '.join(lacking)} is share-alike art, which is not embedded.",
                hint="Run `stockpot data build icons --share-alike` first.",
            )
    return table


def _lacking(table: Any, wanted: Mapping[str, str | None]) -> list[str]:
    return [
        f"{column} {value!r}"
        for column, value in wanted.items()
        if value is not None and not pc.any(pc.equal(table[column], value)).as_py()
    ]


# A recipe asks for the same split again and again; the largest takes about 100 MB.
@lru_cache(maxsize=2)
def _decoded(encoded: tuple[bytes, ...]) -> Tensor:
    def decode(data: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
        with Image.open(io.BytesIO(data)) as picture:
            return np.asarray(picture.convert("RGB"))

    with ThreadPoolExecutor() as threads:
        pictures = np.stack(list(threads.map(decode, encoded)))
    return torch.from_numpy(pictures).permute(0, 3, 1, 2).contiguous()
