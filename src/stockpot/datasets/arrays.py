"""Arrays of pictures: npz, idx and safetensors files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from stockpot.datasets import datasets
from stockpot.datasets.by_content.parts import part_of
from stockpot.datasets.by_content.split_names import WHOLE, named_split, split_called
from stockpot.datasets.dataset import Dataset, TensorImages, pixel_fingerprint
from stockpot.datasets.idx import read_idx
from stockpot.datasets.label_map import resolve_classes
from stockpot.engine.cores import usable_memory
from stockpot.errors import BadDataError, listed, shortened
from stockpot.foreign import reading

IMAGE_KEYS = ("images", "image", "x", "data", "pixels", "imgs")
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
LABEL_KEYS = ("labels", "label", "y", "targets", "target")


@datasets.register("arrays")
def arrays(
    *,
    path: str,
    split: str | None = None,
    images: str | None = None,
    labels: str | None = None,
    classes: int | str | list[str] | None = None,
) -> Dataset:
    """Pictures and labels from an npz, safetensors or idx file.

    Args:
        path: the file. For idx, the file of the pictures (packed with gzip or not).
        split: where a file holds several, the one whose keys carry this name (as in x_test). A file
            without is parted by content into train, val and test, or taken whole (`all`). When not
            given: test, or all of what is not parted.
        images: the key of the pictures; found by its name when not given.
        labels: the key of the labels, or for idx the file of the labels.
        classes: the class names in order, a text or JSON file of them, or how many there are; an
            npz file may hold them as an array of text named classes.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise BadDataError(f"expected a file of arrays, and {file} is none.")
    if file.suffix in (".npz", ".safetensors"):
        store, named = _read_npz(file) if file.suffix == ".npz" else _read_safetensors(file)
        classes = named if classes is None else classes
        key = _key(store, images, IMAGE_KEYS, split, "images", file)
        pixels = store[key]
        target = store[_key(store, labels, LABEL_KEYS, split, "labels", file)]
    else:
        key, pixels, target = "", read_idx(file), read_idx(_idx_labels(file, labels))
    target = _as_labels(target, file)
    pictures = as_pictures(pixels, str(file))
    numbers = [str(value) for value in set(target.tolist())]
    names = resolve_classes(numbers, classes) if len(target) else ()
    found = Dataset(
        name=file.name.split(".")[0],
        split=WHOLE,
        images=TensorImages(pictures),
        labels=target,
        classes=names,
        fingerprint=pixel_fingerprint(pictures, target, names),
    )
    if not images and key and key.lower() not in IMAGE_KEYS:
        return replace(found, split=split or "test")
    own = next(filter(None, map(split_called, re.split(r"[_.]", key.lower()))), None)
    return part_of(found, str(file), own or named_split(file), split)


def as_pictures(values: Tensor, what: str) -> Tensor:
    """Pictures as uint8 N x 3 x H x W, from any order of axes and either range of values."""
    if values.ndim == 3:
        values = values[:, None]
    elif values.ndim == 4 and values.shape[1] not in (1, 3) and values.shape[3] in (1, 3):
        values = values.permute(0, 3, 1, 2)
    if values.ndim != 4 or values.shape[1] not in (1, 3):
        raise BadDataError(
            f"{what}: expected images as N x H x W, N x H x W x C or N x C x H x W with 1 or 3 "
            f"channels, got {_sizes(values)}."
        )
    if values.dtype in FLOATS:
        low, high = (float(values.min()), float(values.max())) if values.numel() else (0.0, 0.0)
        if not (low >= 0 and high <= 1):
            raise BadDataError(
                f"{what}: expected float images in [0, 1], got values from {low:g} to {high:g}.",
                hint="Undo the normalisation, or store them as uint8.",
            )
        values = (values * 255).round().to(torch.uint8)
    if values.dtype != torch.uint8:
        raise BadDataError(f"{what}: expected uint8 or float images, got {values.dtype}.")
    if not values.numel() and values.shape[0]:
        raise BadDataError(f"{what}: expected pictures with pixels, got {_sizes(values)}.")
    return values.expand(-1, 3, -1, -1).contiguous()


def _sizes(values: Tensor) -> str:
    return shortened(" x ".join(map(str, values.shape)) or "a single number", 60)


def _as_labels(values: Tensor, file: Path) -> Tensor:
    flat = values.squeeze()
    if flat.ndim > 1 or flat.is_floating_point() or flat.is_complex():
        raise BadDataError(
            f"{file}: expected one integer label per image, got {values.dtype} of shape "
            f"{tuple(values.shape)}."
        )
    return flat.reshape(-1).to(torch.int64)


def _key(
    store: Mapping[str, Tensor],
    key: str | None,
    known: tuple[str, ...],
    split: str | None,
    what: str,
    file: Path,
) -> str:
    split = split or "test"
    wanted = [key] if key else [f"{split}_{word}" for word in known]
    if not key:
        wanted += [f"{word}_{split}" for word in known] + [f"{split}.{word}" for word in known]
        wanted += list(known)
    lowered = {name.lower(): name for name in store}
    for name in wanted:
        if name in store:
            return name
        if name.lower() in lowered:
            return lowered[name.lower()]
    raise BadDataError(
        f"{file}: no array of {what}" + (f" named {key!r}." if key else f" for split {split!r}."),
        hint=f"It holds: {listed(store)}. Name one with {what}=.",
    )


def _read_npz(file: Path) -> tuple[dict[str, Tensor], list[str] | None]:
    with reading(file):
        # A packed file of a few kB may hold more than any memory.
        with ZipFile(file) as packed:
            if sum(entry.file_size for entry in packed.infolist()) > usable_memory():
                raise MemoryError
        with np.load(file, allow_pickle=False) as store:
            values = {name: store[name] for name in store.files}
            texts = {name: values.pop(name) for name in [*values] if values[name].dtype.kind == "U"}
            names = [str(text) for text in texts["classes"]] if "classes" in texts else None
            return {name: torch.from_numpy(value) for name, value in values.items()}, names


def _read_safetensors(file: Path) -> tuple[dict[str, Tensor], None]:
    with reading(file):
        return dict(load_file(file)), None


def _idx_labels(file: Path, labels: str | None) -> Path:
    guess = file.with_name(file.name.replace("images", "labels").replace("idx3", "idx1"))
    chosen = Path(labels).expanduser() if labels else guess
    if chosen == file or not chosen.is_file():
        raise BadDataError(
            f"{file}: expected the labels in {chosen.name}, which is not there.",
            hint="Name the idx file of the labels with labels=.",
        )
    return chosen
