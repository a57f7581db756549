"""Where the corruptions of a folder lie, in every layout that is published.

| layout | as in |
|---|---|
| `fog/3/n01440764/picture.JPEG` | ImageNet-C, Tiny-ImageNet-C, ImageNet-C-bar, ImageNet-3DCC |
| `weather/fog/3/n01440764/picture.JPEG` | ImageNet-C, one folder for each of its archives |
| `fog/2.35/n01440764/picture.JPEG` | ImageNet-C-bar as its authors' script writes it |
| `fog.npy` (all severities in turn) and `labels.npy` | CIFAR-10-C, CIFAR-100-C, CIFAR-10-C-bar |
| `fog/test_images.npy` and `fog/test_labels.npy` | MNIST-C |
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, NamedTuple

from stockpot.errors import BadDataError

Kind = Literal["pictures", "array", "pair"]
LABELS = "labels"
PAIR = "test_images.npy"
PUBLISHED = (
    *("ImageNet-C", "CIFAR-10-C", "CIFAR-100-C", "Tiny-ImageNet-C", "mnist_c", "imagenet-c-bar"),
    *("ImageNet-C-Bar", "CIFAR-10-C-Bar", "ImageNet-3DCC"),
)
"""What the archives unpack to, for a folder that holds one of them."""
_LEVEL = re.compile(r"\d+(\.\d+)?")


class Place(NamedTuple):
    """Where one corruption lies: a folder of severities, an array of all, or a pair of arrays."""

    path: Path
    kind: Kind


def find_corruptions(folder: Path) -> dict[str, Place]:
    """Every corruption in a folder by its name; what is none of the layouts is passed over."""
    for root in (folder, *(folder / name for name in PUBLISHED)):
        if root.is_dir() and (found := _under(root)):
            return found
    return {}


def severity_folder(place: Place, severity: float) -> Path:
    """The folder of one severity: named by its number, or else the so-manieth by strength.

    Severities between whole ones (2.5) stand beside whole ones; strengths come by fives.
    """
    levels = sorted((entry for entry in _levels(place.path)), key=lambda entry: float(entry.name))
    counted = all(entry.name.isdigit() for entry in levels)
    by_name = {entry.name: entry for entry in levels}
    strengths = not counted and len(levels) == 5
    if not strengths and f"{severity:g}" in by_name:
        return by_name[f"{severity:g}"]
    if strengths and float(severity).is_integer():
        return levels[int(severity) - 1]
    there = ", ".join(entry.name for entry in levels)
    raise BadDataError(
        f"{place.path.parent} has no {place.path.name}/{severity:g}; it has the severities {there}."
    )


def _under(root: Path) -> dict[str, Place]:
    found = {
        path.stem: Place(path, "array")
        for path in root.glob("*.npy")
        if path.stem != LABELS and not path.name.startswith(".")
    }
    folders = [entry for entry in root.iterdir() if entry.is_dir()]
    deeper = [inner for entry in folders for inner in entry.iterdir() if inner.is_dir()]
    # Folders come last and outer ones after inner ones: what is written here replaces the rest.
    for entry in (*deeper, *folders):
        if (entry / PAIR).is_file():
            found[entry.name] = Place(entry, "pair")
        elif not _LEVEL.fullmatch(entry.name) and _levels(entry):
            found[entry.name] = Place(entry, "pictures")
    return found


def _levels(folder: Path) -> list[Path]:
    """The folders of severities: named by numbers, with class folders inside."""
    return [
        entry
        for entry in folder.iterdir()
        if _LEVEL.fullmatch(entry.name)
        and entry.is_dir()
        and any(inner.is_dir() for inner in entry.iterdir())
    ]
