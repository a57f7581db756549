"""Loading the icons: the embedded parquet, or one built here with further styles."""

from __future__ import annotations

import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from importlib.resources import as_file, files
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from PIL import Image

from stockpot.datasets import datasets
from stockpot.datasets.dataset import Dataset, TensorImages, pixel_fingerprint
from stockpot.datasets.holdouts.columns import LOOK_ALIKES, listed
from stockpot.datasets.icons.build import built_path
from stockpot.datasets.icons.split import look_alikes, split_of
from stockpot.datasets.icons.styles import FAMILIES, STYLES, VENDORS
from stockpot.errors import BadParameterError, UnknownNameError, UserError

TEMPLATES = ("an icon of a {}.", "an emoji of a {}.", "a drawing of a {}.")
FACTS = ("concept", "codepoint", "style", "family", "licence", "split")
"""Columns of the file."""


@datasets.register("icons")
def icons(
    *,
    split: Literal["train", "val", "test", "all"] = "test",
    style: str | None = None,
    family: str | None = None,
    exclude_family: str | None = None,
    families: str | tuple[str, ...] | None = None,
    exclude_families: str | tuple[str, ...] | None = None,
    classes: tuple[str, ...] | None = None,
) -> Dataset:
    """Emoji art of openly licensed design families: 50 classes, 64 px on white, embedded.

    Args:
        split: train, val or test (a concept and its look-alikes are wholly in one of them), or
            all, with the few drawings that are in none.
        style: take one drawing style only.
        family: take one design family only.
        exclude_family: leave one design family out, as in training for a style hold-out.
        families: take these design families only.
        exclude_families: leave these design families out.
        classes: take these classes only, numbered in this order.
    """
    known = {entry.name: entry for entry in STYLES}
    if style is not None and style not in known:
        raise UnknownNameError("icon style", style, known)
    taken = {*listed(families or ()), *([family] if family else [])}
    left_out = {*listed(exclude_families or ()), *([exclude_family] if exclude_family else [])}
    for chosen in sorted(taken | left_out):
        if chosen not in FAMILIES:
            raise UnknownNameError("icon family", chosen, FAMILIES)
    table = _table(style, sorted(taken))
    every = tuple(dict.fromkeys(table["class"].to_pylist()))
    for chosen in classes or ():
        if chosen not in every:
            raise UnknownNameError("icon class", chosen, every)
    classes = every if classes is None else tuple(classes)
    for column, value in (("split", None if split == "all" else split), ("style", style)):
        if value is not None:
            table = table.filter(pc.equal(table[column], value))
    if family is not None:
        table = table.filter(pc.equal(table["family"], family))
    if families is not None:
        table = table.filter(pc.is_in(table["family"], pa.array(listed(families))))
    if classes != every:
        table = table.filter(pc.is_in(table["class"], pa.array(classes)))
    if left_out:
        table = table.filter(pc.invert(pc.is_in(table["family"], pa.array(sorted(left_out)))))
    if not len(table):
        raise BadParameterError(
            f"icons: no picture has split {split!r}, style {style!r} and family "
            f"{', '.join(sorted(taken)) or 'any'} outside family "
            f"{', '.join(sorted(left_out)) or 'none'}."
        )
    number = {label: index for index, label in enumerate(classes)}
    labels = torch.tensor([number[label] for label in table["class"].to_pylist()])
    images = _decoded(tuple(table["image"].to_pylist()))
    licences = sorted(set(table["licence"].to_pylist()))
    return Dataset(
        name="icons",
        split=split,
        images=images,
        labels=labels,
        classes=classes,
        fingerprint=pixel_fingerprint(images.pixels, labels, classes),
        licence=" AND ".join(licences),
        templates=TEMPLATES,
        columns=_columns(table),
    )


def _columns(table: Any) -> dict[str, tuple[str, ...]]:
    found = {column: tuple(table[column].to_pylist()) for column in FACTS}
    alike = look_alikes()
    return {
        **found,
        "vendor": tuple(VENDORS.get(family, family) for family in found["family"]),
        "version": found["style"],
        LOOK_ALIKES: tuple(alike[code] for code in found["codepoint"]),
    }


def _table(style: str | None, families: Sequence[str]) -> Any:
    wanted = [("style", style), *(("family", family) for family in families)]
    table = _embedded()
    if lacking := _lacking(table, wanted):
        table = by_tables(pq.read_table(built_path())) if built_path().is_file() else table
        if _lacking(table, wanted):
            raise UserError(
                f"icons: {' and '.join(lacking)} is share-alike art, which is not embedded.",
                hint="Run `stockpot data build icons --share-alike` first.",
            )
    return table


@cache
def _embedded() -> Any:
    with as_file(files("stockpot") / "zoo" / "icons.parquet") as path:
        return by_tables(pq.read_table(path))


def by_tables(table: Any) -> Any:
    """Split and licence as the tables of this folder have them, whenever the file was written."""
    styles, codes = table["style"].to_pylist(), table["codepoint"].to_pylist()
    licences = {style.name: style.licence for style in STYLES}
    facts = {
        "licence": [licences[style] for style in styles],
        "split": [split_of(*drawing) for drawing in zip(styles, codes, strict=True)],
    }
    for column, values in facts.items():
        table = table.set_column(table.schema.get_field_index(column), column, pa.array(values))
    return table


def _lacking(table: Any, wanted: Sequence[tuple[str, str | None]]) -> list[str]:
    return [
        f"{column} {value!r}"
        for column, value in wanted
        if value is not None and not pc.any(pc.equal(table[column], value)).as_py()
    ]


# A recipe asks for the same split again and again; the largest takes about 100 MB. The images and
# not only their pixels: what is kept by images (`image_hashes`) is found again.
@lru_cache(maxsize=2)
def _decoded(encoded: tuple[bytes, ...]) -> TensorImages:
    with ThreadPoolExecutor() as threads:
        pictures = np.stack(list(threads.map(picture_of, encoded)))
    return TensorImages(torch.from_numpy(pictures).permute(0, 3, 1, 2).contiguous())


def picture_of(encoded: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The pixels of one picture of the file."""
    with Image.open(io.BytesIO(encoded)) as picture:
        return np.asarray(picture.convert("RGB"))
