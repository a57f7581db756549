"""ImageNet's validation images and the sets with the same 1000 classes: V2, Sketch, Stylized."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from stockpot.datasets import datasets
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.label_map import read_label_map
from stockpot.datasets.natural.classes import imagenet_names, wnid_places
from stockpot.datasets.natural.layout import Layout, NaturalSet, picture_names
from stockpot.datasets.natural.public import Source, folder_dataset, load_public
from stockpot.datasets.stream.file_check import OnBroken
from stockpot.errors import BadDataError
from stockpot.types import Split

Version = Literal["matched-frequency", "threshold-0.7", "top-images"]
TERMS = "ImageNet terms of access"


def by_wnid(folder: str) -> int | None:
    """The class of a folder named by its WordNet id."""
    return wnid_places().get(folder)


def by_number(folder: str) -> int | None:
    """The class of a folder named 0 to 999 (where 10 comes before 2 by name), or by its id."""
    return int(folder) if folder.isdigit() and int(folder) < 1000 else by_wnid(folder)


def _thousand(name: str, layout: Layout, licence: str, hub_split: str = "test") -> NaturalSet:
    places = tuple(range(1000))
    number = by_number if name == "imagenet_v2" else by_wnid
    return NaturalSet(name, layout, imagenet_names(), number, places, licence, hub_split)


VAL = _thousand(
    "imagenet",
    Layout(("imagenet", "ILSVRC/Data/CLS-LOC"), ("val_in_folder", "val", "validation")),
    TERMS,
    "validation",
)
TRAIN = _thousand(
    "imagenet", Layout(("imagenet", "ILSVRC/Data/CLS-LOC"), ("train",)), TERMS, "train"
)
SKETCH = _thousand(
    "imagenet_sketch", Layout(("sketch", "imagenet-sketch"), ("sketch", "data/sketch")), "unknown"
)
STYLIZED = _thousand(
    "stylized_imagenet",
    Layout(("stylized-imagenet", "stylized_imagenet", "imagenet-stylized"), ("val",)),
    TERMS,
)
V2: dict[str, NaturalSet] = {
    version: _thousand(
        "imagenet_v2",
        Layout((f"imagenetv2-{folder}-format-val", f"imagenetv2-{folder}", *further)),
        "MIT",
    )
    for version, folder, further in (
        ("matched-frequency", "matched-frequency", ("imagenet-v2", "imagenetv2")),
        ("threshold-0.7", "threshold0.7", ()),
        ("top-images", "top-images", ()),
    )
}


@datasets.register("imagenet", paper="arXiv:1409.0575")
def imagenet(
    *,
    path: str,
    split: Split = "val",
    labels: str | None = None,
    files: str | None = None,
    config: str | None = None,
    image: str | None = None,
    label: str | None = None,
    hub_split: str | None = None,
    on_broken: OnBroken = "stop",
) -> Dataset:
    """ImageNet (ILSVRC 2012): 1000 classes, 50,000 validation images, from your copy.

    Args:
        path: the folder with `val` (or `val_in_folder`) and its WordNet-id folders, a folder of
            several sets, or a hub id such as ILSVRC/imagenet-1k.
        split: val (also called test, since the true test labels are not public) or train.
        labels: for validation images that lie flat, a CSV or JSON file from image to WordNet id,
            or a text file with one id a line in the order of the images' names.
        files: a text file with the pictures to take, one a line as in RobustBench's list of 5000
            (n01440764/ILSVRC2012_val_00000293.JPEG), or `robustbench` where it is installed.
        config: the configuration of a hub dataset that has several.
        image: the hub data's column of pictures; found when not given.
        label: the hub data's column of labels; found when not given.
        hub_split: the split as the hub names it.
        on_broken: what to do with files that cannot be decoded: stop and name them, or skip them.
    """
    known = TRAIN if split == "train" else VAL
    if labels is not None:
        flat, table = Path(path).expanduser(), Path(labels).expanduser()
        return _flat(known, flat, table, on_broken, files)
    source = Source(path, config, image, label, on_broken, hub_split, files)
    return load_public(known, source, "train" if split == "train" else "val")


@datasets.register("imagenet_v2", paper="arXiv:1902.10811")
def imagenet_v2(
    *,
    path: str,
    version: Version = "matched-frequency",
    config: str | None = None,
    image: str | None = None,
    label: str | None = None,
    hub_split: str | None = None,
    on_broken: OnBroken = "stop",
) -> Dataset:
    """ImageNet-V2: a second test set for the 1000 classes, 10,000 images.

    Args:
        path: the folder whose sub-folders are 0 to 999 (numbers, not names: 10 does not come
            before 2), a folder of several sets, or a hub id.
        version: which of the three collections; most papers mean matched-frequency.
        config: the configuration of a hub dataset that has several.
        image: the hub data's column of pictures; found when not given.
        label: the hub data's column of labels; found when not given.
        hub_split: the split as the hub names it.
        on_broken: as for `imagenet`.
    """
    source = Source(path, config, image, label, on_broken, hub_split)
    return load_public(V2[version], source, version)


@datasets.register("imagenet_sketch", paper="arXiv:1905.13549")
def imagenet_sketch(
    *,
    path: str,
    config: str | None = None,
    image: str | None = None,
    label: str | None = None,
    hub_split: str | None = None,
    on_broken: OnBroken = "stop",
) -> Dataset:
    """ImageNet-Sketch: 50,000 black-and-white sketches of the 1000 classes.

    Args:
        path: the folder `sketch` of WordNet-id folders, a folder of several sets, or a hub id.
        config: the configuration of a hub dataset that has several.
        image: the hub data's column of pictures; found when not given.
        label: the hub data's column of labels; found when not given.
        hub_split: the split as the hub names it.
        on_broken: as for `imagenet`.
    """
    source = Source(path, config, image, label, on_broken, hub_split)
    return load_public(SKETCH, source, "test")


@datasets.register("stylized_imagenet", paper="arXiv:1811.12231")
def stylized_imagenet(*, path: str, on_broken: OnBroken = "stop") -> Dataset:
    """Stylized ImageNet: validation images painted in the style of paintings, 224 px.

    Args:
        path: the folder of WordNet-id folders that its authors' script writes, the folder above,
            or a folder of several sets.
        on_broken: as for `imagenet`.
    """
    return load_public(STYLIZED, Source(path, on_broken=on_broken), "val")


def _flat(
    known: NaturalSet, path: Path, labels: Path, on_broken: OnBroken, listed: str | None
) -> Dataset:
    """Validation images in one folder, as the archive unpacks."""
    folder = next((path / name for name in known.layout.inner if (path / name).is_dir()), path)
    names = sorted(picture_names(folder))
    if labels.suffix == ".txt":
        lines = labels.read_text(encoding="utf-8").split()
        if len(lines) != len(names):
            raise BadDataError(
                f"labels: {labels} has {len(lines)} lines for {len(names)} images in {folder}."
            )
        given = dict(zip(names, lines, strict=True))
    else:
        table = read_label_map(labels)
        given = {name: table.get(name, table.get(Path(name).stem, "")) for name in names}
    # A competition's solution file writes the id and then the boxes of the objects.
    found = {name: by_wnid(text.split(" ")[0]) for name, text in given.items()}
    lacking = [name for name, number in found.items() if number is None]
    if lacking:
        raise BadDataError(
            f"labels: {labels} gives no WordNet id of ImageNet for {len(lacking)} of "
            f"{len(names)} images, such as {lacking[0]} ({given[lacking[0]] or 'not named'!r}).",
            hint="The numbers of the development kit are in another order; give WordNet ids.",
        )
    files = {name: number for name, number in found.items() if number is not None}
    return folder_dataset(known, folder, files, "val", on_broken, listed)
