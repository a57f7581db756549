"""Pictures in folders: one folder per class, or a flat folder with a label map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from stockpot.datasets import datasets
from stockpot.datasets.by_content.parts import part_of
from stockpot.datasets.by_content.split_names import WHOLE, named_split
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.encoded import EncodedImages
from stockpot.datasets.holdouts.metadata import read_facts, with_facts
from stockpot.datasets.label_map import LabelIndex, read_label_map, resolve_classes
from stockpot.datasets.listed import read_listing
from stockpot.datasets.natural.classes import imagenet_names, wnid_places
from stockpot.datasets.picture_folder import (
    FilesBelow,
    folder_names,
    picture_names,
    split_folder,
)
from stockpot.datasets.stream.file_check import OnBroken, content_fingerprint, inspect, usable_rows
from stockpot.errors import BadDataError, listed


@datasets.register("imagefolder")
def imagefolder(
    *,
    path: str,
    split: str | None = None,
    labels: str | None = None,
    classes: int | str | list[str] | None = None,
    files: str | None = None,
    on_broken: OnBroken = "stop",
) -> Dataset:
    """A folder of pictures: class folders, or any layout with a label map.

    A file metadata.csv beside the class folders says more of each picture, such as its style and
    concept.

    Args:
        path: the folder. A sub-folder named like the split is used when there is one.
        split: train, val, test, or any sub-folder. A folder without such folders is parted by
            content, or taken whole (`all`). When not given: test, or all of what is not parted.
        labels: a CSV or JSON file from file or folder name to class name or index.
        classes: the class names in order, a text or JSON file of them, or how many there are;
            when not given, the names of the folders, and words where these are WordNet ids.
        files: a text file with the pictures to take, one a line, named from the class folders on.
        on_broken: what to do with files that cannot be decoded: stop and name them, or skip them.
    """
    place = Path(path).expanduser()
    root, parted = split_folder(place, split)
    there = picture_names(root)
    if labels is None:
        found = _by_folder(root, there)
        known = _folder_classes(set(found.values())) if classes is None else classes
        names = resolve_classes([], known)
    else:
        found = _by_map(root, there, read_label_map(Path(labels).expanduser()), classes is None)
        names = resolve_classes(list(found.values()), classes)
    relative = sorted(found)
    if files is not None:
        listing = read_listing(files)
        relative = listing.choose(relative, root)
    targets = _numbers(relative, found, names)
    names = spoken(names) if classes is None else names
    places = FilesBelow(str(root), tuple(relative))
    seen = inspect(places, root)
    rows = usable_rows(relative, seen.broken, on_broken, str(root))
    if not rows:
        raise BadDataError(f"{root}: no image is left.")
    kept = tuple(relative[row] for row in rows)
    target = torch.tensor([targets[row] for row in rows])
    digests = tuple(seen.digests[row] for row in rows)
    facts = read_facts(root, kept)
    content = content_fingerprint(kept, digests, target, names)
    found_here = Dataset(
        name=place.resolve().name or "imagefolder",
        split=parted or WHOLE,
        images=EncodedImages(FilesBelow(str(root), kept), kept, digests),
        labels=target,
        classes=names,
        fingerprint=with_facts(content, facts),
        columns={**facts, "file": kept},
    )
    if parted is None:
        found_here = part_of(found_here, str(place), named_split(place), split)
    if files is not None:
        found_here = replace(found_here, split=f"{found_here.split}[{listing.name}]")
    return found_here


def unlabelled_folder(path: str | Path, classes: int | str | Sequence[str]) -> Dataset:
    """All pictures below a folder. Labels are all 0 and mean nothing: nobody may score by them.

    Args:
        path: the folder; how its pictures lie in folders says nothing.
        classes: those that the pictures may have, as for `imagefolder`.
    """
    root = Path(path).expanduser()
    names = resolve_classes([], classes)
    files = tuple(sorted(picture_names(root)))
    places = FilesBelow(str(root), files)
    seen = inspect(places, root)
    usable_rows(files, seen.broken, "stop", str(root))
    nothing = torch.zeros(len(files), dtype=torch.long)
    return Dataset(
        name=root.resolve().name or "imagefolder",
        split=WHOLE,
        images=EncodedImages(places, files, tuple(seen.digests)),
        labels=nothing,
        classes=names,
        fingerprint=content_fingerprint(files, seen.digests, nothing, names),
        columns={"file": files},
    )


def spoken(classes: tuple[str, ...]) -> tuple[str, ...]:
    """Words for classes that are all given by WordNet ids of ImageNet, in the same order.

    Words are what a prompt can be made of; every model of ImageNet is understood either way.
    """
    places = wnid_places()
    if not all(name in places for name in classes):
        return classes
    return tuple(imagenet_names()[places[name]] for name in classes)


def _by_folder(root: Path, files: list[str]) -> dict[str, str]:
    """File -> name of its class folder."""
    folders = folder_names(root)
    if not folders:
        raise BadDataError(
            f"expected one folder per class in {root}, found {len(files)} images and no folder.",
            hint="Give labels=FILE.csv with the class of each file.",
        )
    found = {name: name.partition("/")[0] for name in files if "/" in name}
    empty = sorted(set(folders) - set(found.values()))
    if empty:
        raise BadDataError(f"{root}: no images in the class folders {listed(empty)}.")
    return found


def _folder_classes(names: set[str]) -> list[str] | int:
    """The names of the folders; how many there are, where these count from 0."""
    counted = [str(number) for number in range(len(names))]
    if {name.lstrip("0") or "0" for name in names} == set(counted):
        return len(names)
    return sorted(names)


def _numbers(files: Sequence[str], labels: Mapping[str, str], classes: Sequence[str]) -> list[int]:
    """The number of each file's class; a label is looked up once, with the first of its files."""
    index, known = LabelIndex(classes), dict[str, int]()
    for name in files:
        if (label := labels[name]) not in known:
            known[label] = index.of(label, name)
    return [known[labels[name]] for name in files]


def _by_map(
    root: Path, files: list[str], label_map: Mapping[str, str], complete: bool
) -> dict[str, str]:
    """File -> class, where the map names the file (with or without folders) or its folder."""
    found: dict[str, str] = {}
    used: set[str] = set()
    for name in files:
        parts = name.split("/")
        stem = parts[-1].rpartition(".")[0]
        for key in (name, parts[-1], stem, *reversed(parts[:-1])):
            if key in label_map:
                found[name] = label_map[key]
                used.add(key)
                break
    if not found:
        example = next(iter(label_map))
        raise BadDataError(
            f"labels: none of the {len(files)} images in {root} is named in the label map "
            f"(it names {example!r}; a file is {files[0]!r})."
        )
    missing = sorted(set(label_map) - used)
    if missing and complete:
        shown = listed(missing, 100)
        raise BadDataError(
            f"labels: {len(missing)} of {len(label_map)} names in the label map have no image in "
            f"{root}: {shown}.",
            hint="Give all classes with classes= if a part of them is meant.",
        )
    return found
