"""Pictures for the viewer: images of a dataset, and the same under a condition, made anew.

Corruptions are made again by the seed of the cell: the pixels that were measured, where they were
made at the published size. Attacked pictures are shown where `save` has kept them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from stockpot.attack.saved_images import load_images
from stockpot.corrupt.apply import corrupt, picture_seeds
from stockpot.corrupt.sizes import corruptible
from stockpot.datasets.corrupted.stored import CorruptionSet
from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.datasets.load import load_dataset
from stockpot.errors import UserError
from stockpot.measure.chosen_data import load_chosen
from stockpot.measure.samples.table import image_names
from stockpot.results.conditions import condition_of
from stockpot.results.samples import DataSource
from stockpot.results.schema import CellResult

_SIDE = 256
"""Larger pictures are brought to this side while they are decoded."""
_BATCH = 64


@dataclass(frozen=True)
class DatasetPictures:
    """The pictures of one dataset."""

    data: Dataset

    def original(self, rows: Sequence[int]) -> list[Image.Image]:
        """The images of these rows as they are."""
        return _pictures(self.data.take(rows))

    def under(self, cell: CellResult, record: str, rows: Sequence[int]) -> list[Image.Image] | None:
        """The same as a record of a result was about; none where that cannot be had again."""
        about = condition_of(cell, record)
        try:
            if about.kind == "corruption" and about.corruption and about.severity is not None:
                return self._corrupted(cell, about.corruption, about.severity, rows)
            if about.kind == "attack" and about.norm and cell.key.params.get("save"):
                return self._attacked(cell, f"{about.norm}:{about.eps}", rows)
        except (UserError, OSError):
            return None  # files that were there may have gone: the originals are shown
        return None

    def _corrupted(
        self, cell: CellResult, name: str, severity: float, rows: Sequence[int]
    ) -> list[Image.Image]:
        params: Mapping[str, Any] = cell.key.params
        if params.get("folder"):
            stored = CorruptionSet(str(params["folder"]), self.data)
            return _pictures(stored.load(name, severity).take(rows))
        options = {"overlays": params.get("overlays", "procedural")} if name == "frost" else {}
        made: list[Image.Image] = []
        part = self.data.take(rows)
        for batch in corruptible(part, _BATCH, part_of=self.data):
            seeds = picture_seeds(cell.key.seed, [rows[int(row)] for row in batch.rows])
            profile = params.get("profile", "auto")
            pixels = corrupt(batch.images, name, severity, seed=seeds, profile=profile, **options)
            made += _images(pixels)
        return made

    def _attacked(
        self, cell: CellResult, threat: str, rows: Sequence[int]
    ) -> list[Image.Image] | None:
        saved = load_images(str(cell.key.params["save"]))
        if saved.manifest.get("data_fingerprint") != self.data.fingerprint:
            return None
        for member, images in saved.images.items():
            if f"{member.norm}:{member.eps}" == threat:
                return _images((images[list(rows)] * 255).round().to(torch.uint8))
        return None

    def labels(self) -> list[str]:
        """The class of every image."""
        return [self.data.classes[label] for label in self.data.labels.tolist()]

    def names(self) -> list[str]:
        """What every image is called."""
        return image_names(self.data)


def pictures_of(
    source: DataSource, *, n: int, fingerprint: str, chosen: Any = None
) -> DatasetPictures | str:
    """The pictures of the data that was measured, or why they are not here.

    Args:
        source: what `load_dataset` is told.
        n: how many images there must be.
        fingerprint: of the data; empty where results do not say it.
        chosen: a dataset as measures take it in place of a source, for sets outside.
    """
    if chosen is None and not source.source:
        return "the results do not say where the images are: give --data"
    try:
        if chosen is not None:
            data = load_chosen(chosen, "outside")
        else:
            data = load_dataset(source.source, **source.options)
    except UserError as problem:
        return f"the images are not at hand: {problem.message.rstrip('.')}"
    if len(data) != n or (fingerprint and data.fingerprint != fingerprint):
        where = source.source or data.name
        return f"{where} holds other images than those that were measured ({len(data)}, not {n})"
    return DatasetPictures(data)


def _pictures(data: Dataset) -> list[Image.Image]:
    if isinstance(data.images, TensorImages):
        return _images(data.images.pixels)
    found: list[Image.Image] = []
    for batch in data.batches(_BATCH, _square):
        found += _images(batch.images)
    return found


def _square(picture: Image.Image) -> Image.Image:
    """A picture whole on a grey square: batches are made of pictures of one size."""
    share = _SIDE / max(picture.size)
    size = max(1, round(picture.width * share)), max(1, round(picture.height * share))
    square = Image.new("RGB", (_SIDE, _SIDE), (127, 127, 127))
    corner = (_SIDE - size[0]) // 2, (_SIDE - size[1]) // 2
    square.paste(picture.resize(size, Image.Resampling.LANCZOS), corner)
    return square


def _images(pixels: Tensor) -> list[Image.Image]:
    rows: Iterable[Tensor] = pixels.permute(0, 2, 3, 1)
    return [Image.fromarray(np.ascontiguousarray(row.numpy())) for row in rows]
