"""Icons-50 as its authors gave it out (arXiv:1807.01697): class folders, or one file of arrays.

In the folders a picture is called `NUMBER_VENDOR_SUBTYPE.png`, with `_2` and so on where a vendor
drew a subtype more than once. `Icons-50.npy` is a pickled dictionary of `class`, `style`,
`subtype`, `rendition` and `image` (N x 3 x 32 x 32); nothing but arrays and texts is read from it.
The pictures belong to their vendors.
"""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from stockpot.datasets import datasets
from stockpot.datasets.dataset import Dataset, TensorImages, pixel_fingerprint
from stockpot.datasets.imagefolder import imagefolder
from stockpot.errors import BadDataError

VENDORS = (
    *("apple", "google", "facebook", "emoji-one", "samsung", "microsoft", "lg", "htc", "whatsapp"),
    *("messenger", "twitter", "emojidex", "mozilla"),
)
KEYS = ("class", "style", "subtype", "rendition", "image")
LICENCE = "proprietary: each vendor's own, not for redistribution"
_NAME = re.compile(
    rf"(?:\d+_)?(?P<style>{'|'.join(VENDORS)})_(?P<subtype>.+?)(?:_(?P<rendition>[2-9]))?"
)


@datasets.register("icons50", paper="arXiv:1807.01697")
def icons50(*, path: str) -> Dataset:
    """Icons-50 from a user's copy, with style, concept (subtype) and version as columns.

    Args:
        path: the folder of the 50 class folders, or the file Icons-50.npy.
    """
    place = Path(path).expanduser()
    return _from_array(place) if place.is_file() else _from_folders(place)


def _from_folders(root: Path) -> Dataset:
    data = imagefolder(path=str(root), split="all")
    parsed = [_NAME.fullmatch(Path(name).stem) for name in data.columns["file"]]
    strange = [name for name, found in zip(data.columns["file"], parsed, strict=True) if not found]
    if strange:
        raise BadDataError(
            f"{root}: expected names such as 12_microsoft_small_airplane.png, got {strange[0]}.",
            hint=f"Vendors are {', '.join(VENDORS)}.",
        )
    facts = [found.groupdict(default="1") for found in parsed if found]
    return _described(data, {key: [fact[key] for fact in facts] for key in facts[0]})


def _from_array(file: Path) -> Dataset:
    with file.open("rb") as stream:
        stored = _unpickled(stream, file)
    if not isinstance(stored, dict) or set(KEYS) - set(stored):
        raise BadDataError(f"{file}: expected a dictionary of {', '.join(KEYS)}.")
    pixels = torch.from_numpy(np.ascontiguousarray(stored["image"]).astype(np.uint8))
    labels = torch.from_numpy(np.asarray(stored["class"]).astype(np.int64))
    # The file has numbers for classes; a subtype of each says what its pictures show.
    classes = tuple(f"class {number}" for number in range(int(labels.max()) + 1))
    data = Dataset(
        name="icons50",
        split="all",
        images=TensorImages(pixels),
        labels=labels,
        classes=classes,
        fingerprint=pixel_fingerprint(pixels, labels, classes),
    )
    return _described(data, {key: [str(value) for value in stored[key]] for key in KEYS[1:4]})


def _described(data: Dataset, facts: dict[str, list[str]]) -> Dataset:
    columns = {
        **data.columns,
        "style": tuple(facts["style"]),
        "concept": tuple(facts["subtype"]),
        "version": tuple(facts["rendition"]),
    }
    return replace(data, name="icons50", split="all", licence=LICENCE, columns=columns)


def _unpickled(stream: BinaryIO, file: Path) -> Any:
    try:
        version = np.lib.format.read_magic(stream)
        read = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        read(stream)
        return _ArraysOnly(stream).load().item()
    except (ValueError, AttributeError, EOFError, pickle.UnpicklingError) as problem:
        raise BadDataError(f"{file} is no Icons-50.npy ({problem}).") from None


class _ArraysOnly(pickle.Unpickler):
    """Builds arrays, and refuses every other object."""

    def find_class(self, module: str, name: str) -> Any:
        known = {"_reconstruct", "ndarray", "dtype", "scalar", "_frombuffer"}
        if module.partition(".")[0] == "numpy" and name in known:
            return super().find_class(module, name)
        if (module, name) == ("_codecs", "encode"):  # bytes, as Python 2 wrote them
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it holds {module}.{name}")
