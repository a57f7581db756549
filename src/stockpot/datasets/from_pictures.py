"""A dataset of pictures that are in memory already, as PIL images."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from PIL import Image

from stockpot.datasets.by_content.split_names import WHOLE
from stockpot.datasets.dataset import Dataset, TensorImages, pixel_fingerprint
from stockpot.datasets.encoded import EncodedImages
from stockpot.datasets.pictures import as_rgb
from stockpot.datasets.stream.file_check import content_fingerprint
from stockpot.errors import BadDataError, listed

Given = Mapping[str, Sequence[Image.Image]] | Sequence[tuple[Image.Image, str | int]]
"""Pictures by class name, or pairs of a picture and its class."""


def dataset_of(
    pictures: Given, *, classes: Sequence[str] | None = None, name: str = "pictures"
) -> Dataset:
    """A dataset of PIL images.

    Args:
        pictures: lists of them by class name, or pairs of a picture and its class (name or number).
        classes: the class names in order; when not given, those that occur, in alphabetical order.
        name: what results call the data.
    """
    pairs = _pairs(pictures)
    if not pairs:
        raise BadDataError("expected at least one picture, got none.")
    numbers = all(isinstance(label, int) for _, label in pairs)
    if classes is None:
        found = {str(label) for _, label in pairs}
        classes = [str(n) for n in range(max(map(int, found)) + 1)] if numbers else sorted(found)
    labels = torch.tensor([_number(label, list(classes), numbers) for _, label in pairs])
    shown = [as_rgb(picture) for picture, _ in pairs]
    if len({picture.size for picture in shown}) == 1:
        stacked = np.stack([np.asarray(picture) for picture in shown])
        pixels = torch.from_numpy(stacked.transpose(0, 3, 1, 2).copy())
        mark = pixel_fingerprint(pixels, labels, classes)
        return Dataset(name, WHOLE, TensorImages(pixels), labels, tuple(classes), mark)
    items = [_encoded(picture) for picture in shown]
    names = [f"picture {row}" for row in range(len(items))]
    digests = [hashlib.sha256(item).hexdigest() for item in items]
    return Dataset(
        name,
        WHOLE,
        EncodedImages(tuple(items), tuple(names), tuple(digests)),
        labels,
        tuple(classes),
        content_fingerprint(names, digests, labels, tuple(classes)),
    )


def _pairs(pictures: Given) -> list[tuple[Image.Image, str | int]]:
    if isinstance(pictures, Mapping):
        by_class = {label: list(some) for label, some in pictures.items()}
        empty = [str(label) for label, some in by_class.items() if not some]
        if empty:
            raise BadDataError(f"expected pictures of every class, got none of {listed(empty)}.")
        pairs = [(picture, label) for label, some in by_class.items() for picture in some]
    else:
        pairs = list(pictures)  # type: ignore[arg-type]
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], Image.Image):
            raise BadDataError(
                f"expected pairs of a PIL image and its class, got {type(pair).__name__}.",
                hint="Or give a mapping from class names to lists of PIL images.",
            )
        if pair[1] is None:
            raise BadDataError("expected a class for every picture, got None for one.")
    return pairs  # type: ignore[return-value]


def _number(label: str | int, classes: list[str], numbers: bool) -> int:
    if numbers:
        return int(label)
    if str(label) not in classes:
        raise BadDataError(f"{label!r} is not among the classes {', '.join(classes)}.")
    return classes.index(str(label))


def _encoded(picture: Image.Image) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, "PNG", compress_level=1)
    return stream.getvalue()
