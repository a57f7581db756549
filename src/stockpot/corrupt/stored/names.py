"""The names of folders and files of a stored corrupted dataset, such that any reader is right.

Readers number class folders by alphabet. ImageNet's WordNet ids stand in the order of its classes,
its words do not, so that pictures of ImageNet's classes lie under their ids, as the published ones.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import PurePosixPath

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.natural.classes import imagenet_classes, imagenet_names


def picture_names(data: Dataset, suffix: str) -> list[str]:
    """`class/file` of every row, no two alike, also where upper and lower case are the same.

    The original file names where there are any; of two that are alike the folders between class
    and file are kept, and where that does not tell them apart the row number. Else row numbers.
    """
    folders = class_folders(data)
    labels = data.labels.tolist()
    given = data.columns.get("file")
    if not given:
        return [f"{folders[label]}/{row:06d}{suffix}" for row, label in enumerate(labels)]
    short = [PurePosixPath(file).stem for file in given]
    long = [
        "_".join(PurePosixPath(file).with_suffix("").parts[1:]) or stem
        for file, stem in zip(given, short, strict=True)
    ]
    numbered = [f"{name}-{row:06d}" for row, name in enumerate(long)]
    chosen = _apart([folders[label] for label in labels], [short, long, numbered])
    return [f"{name}{suffix}" for name in chosen]


def class_folders(data: Dataset) -> tuple[str, ...]:
    """The folder of each class: its WordNet id for ImageNet's, else its name."""
    ids = {each.name: each.wnid for each in imagenet_classes()}
    if all(name in ids for name in data.classes) and _is_imagenet(data, ids):
        return tuple(ids[name] for name in data.classes)
    plain = [re.sub(r"[/\\\0]", "_", name).strip() or "_" for name in data.classes]
    plain = [f"_{name}" if name.startswith(".") else name for name in plain]
    numbered = [f"{name}-{number}" for number, name in enumerate(plain)]
    return tuple(_apart([""] * len(plain), [plain, numbered]))


def _is_imagenet(data: Dataset, ids: Mapping[str, str]) -> bool:
    """Whether words that ImageNet has too mean its classes: by the data's name, or its folders."""
    if data.name.startswith("imagenet") or data.classes == imagenet_names():
        return True
    given = data.columns.get("file", ())
    told = (ids[data.classes[label]] for label in data.labels.tolist())
    pairs = zip(told, given, strict=False)
    return bool(given) and all(wnid in PurePosixPath(file).parts for wnid, file in pairs)


def _apart(folders: list[str], ways: list[list[str]]) -> list[str]:
    """For each row the first way to name it that no other row of its folder is named."""
    places = [
        [f"{folder}/{name}" if folder else name for folder, name in zip(folders, way, strict=True)]
        for way in ways
    ]
    found = list(places[0])
    for way in places[1:]:
        often = Counter(name.lower() for name in found)
        found = [
            longer if often[name.lower()] > 1 else name
            for name, longer in zip(found, way, strict=True)
        ]
    return found
