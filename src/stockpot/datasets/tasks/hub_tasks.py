"""The tasks of model merging that come from the hub; the others are named sets already.

First those of the eight of task arithmetic (arXiv:2212.04089), then what the sets of 14 and of 20
add to them (arXiv:2405.07813).
"""

from __future__ import annotations

from stockpot.datasets import datasets
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.tasks.definition import HubTask, TaskSplit
from stockpot.datasets.tasks.dtd_folder import is_published, published_dtd
from stockpot.types import Split


@datasets.register("sun397")
def sun397(*, split: TaskSplit = "test", path: str | None = None) -> Dataset:
    """SUN397: photographs of scenes in 397 classes (from the hub).

    Args:
        split: train or test.
        path: a hub id or a local copy with the same columns; tanganke/sun397 when not given.
    """
    task = HubTask("sun397", "tanganke/sun397")
    return task.load(split, path)


@datasets.register("stanford_cars")
def stanford_cars(*, split: TaskSplit = "test", path: str | None = None) -> Dataset:
    """Stanford Cars: 196 makes and models of cars (from the hub).

    Args:
        split: train or test.
        path: a hub id or a local copy; tanganke/stanford_cars when not given.
    """
    return HubTask("stanford_cars", "tanganke/stanford_cars").load(split, path)


@datasets.register("resisc45")
def resisc45(*, split: TaskSplit = "test", path: str | None = None) -> Dataset:
    """RESISC45: aerial photographs in 45 classes (from the hub).

    Args:
        split: train or test.
        path: a hub id or a local copy; tanganke/resisc45 when not given.
    """
    return HubTask("resisc45", "tanganke/resisc45").load(split, path)


@datasets.register("eurosat")
def eurosat(*, split: TaskSplit = "test", path: str | None = None) -> Dataset:
    """EuroSAT: satellite images of land use in ten classes (from the hub).

    Args:
        split: train or test.
        path: a hub id or a local copy; tanganke/eurosat when not given.
    """
    return HubTask("eurosat", "tanganke/eurosat").load(split, path)


@datasets.register("svhn")
def svhn(*, split: TaskSplit = "test", path: str | None = None) -> Dataset:
    """SVHN: digits of house numbers (from the hub, cropped digits).

    Args:
        split: train or test.
        path: a hub id or a local copy; ufldl-stanford/svhn when not given.
    """
    task = HubTask("svhn", "ufldl-stanford/svhn", config="cropped_digits")
    return task.load(split, path)


@datasets.register("gtsrb")
def gtsrb(*, split: TaskSplit = "test", path: str | None = None) -> Dataset:
    """GTSRB: German traffic signs in 43 classes (from the hub).

    Args:
        split: train or test.
        path: a hub id or a local copy; tanganke/gtsrb when not given.
    """
    return HubTask("gtsrb", "tanganke/gtsrb").load(split, path)


@datasets.register("dtd")
def dtd(*, split: TaskSplit = "test", path: str | None = None) -> Dataset:
    """DTD: describable textures in 47 classes (from the hub).

    Args:
        split: train or test.
        path: a hub id or a local copy, also a folder as published (`images/`, `labels/`), from
            which classes may be missing; tanganke/dtd when not given.
    """
    if path is not None and is_published(path):
        return published_dtd(path, split)
    return HubTask("dtd", "tanganke/dtd").load(split, path)


@datasets.register("oxford_flowers102")
def oxford_flowers102(*, split: TaskSplit = "test", path: str | None = None) -> Dataset:
    """Oxford Flowers: 102 species (from the hub).

    Args:
        split: train or test.
        path: a hub id or a local copy; dpdl-benchmark/oxford_flowers102 when not given.
    """
    home = "dpdl-benchmark/oxford_flowers102"
    return HubTask("oxford_flowers102", home).load(split, path)


@datasets.register("pcam")
def pcam(*, split: Split = "test", path: str | None = None) -> Dataset:
    """PatchCamelyon: lymph node tissue with and without a tumour (from the hub).

    Args:
        split: train, val or test.
        path: a hub id or a local copy; 1aurent/PatchCamelyon when not given.
    """
    splits = {"train": "train", "val": "valid", "test": "test"}
    task = HubTask("pcam", "1aurent/PatchCamelyon", splits=splits)
    return task.load(split, path)


@datasets.register("fer2013")
def fer2013(*, split: TaskSplit = "test", path: str | None = None) -> Dataset:
    """FER2013: faces with one of seven feelings (from the hub).

    Args:
        split: train or test.
        path: a hub id or a local copy; clip-benchmark/wds_fer2013 when not given.
    """
    home = "clip-benchmark/wds_fer2013"
    task = HubTask("fer2013", home, image="jpg", label="cls")
    return task.load(split, path)


@datasets.register("oxford_iiit_pet")
def oxford_iiit_pet(*, split: TaskSplit = "test", path: str | None = None) -> Dataset:
    """Oxford-IIIT Pet: 37 breeds of cats and dogs (from the hub).

    Args:
        split: train or test.
        path: a hub id or a local copy; timm/oxford-iiit-pet when not given.
    """
    home = "timm/oxford-iiit-pet"
    return HubTask("oxford_iiit_pet", home, label="label").load(split, path)


@datasets.register("stl10")
def stl10(*, split: TaskSplit = "test", path: str | None = None) -> Dataset:
    """STL-10: photographs of 96 px in ten classes (from the hub).

    Args:
        split: train or test.
        path: a hub id or a local copy; tanganke/stl10 when not given.
    """
    return HubTask("stl10", "tanganke/stl10").load(split, path)


@datasets.register("cifar100")
def cifar100(*, split: TaskSplit = "test", path: str | None = None) -> Dataset:
    """CIFAR-100: photographs of 32 px in 100 classes (from the hub).

    Args:
        split: train or test.
        path: a hub id or a local copy; tanganke/cifar100 when not given.
    """
    return HubTask("cifar100", "tanganke/cifar100").load(split, path)


@datasets.register("food101")
def food101(*, split: TaskSplit = "test", path: str | None = None) -> Dataset:
    """Food-101: dishes in 101 classes (from the hub).

    Args:
        split: train or test (which the hub calls validation).
        path: a hub id or a local copy; ethz/food101 when not given.
    """
    splits = {"train": "train", "test": "validation"}
    return HubTask("food101", "ethz/food101", splits=splits).load(split, path)


@datasets.register("emnist_letters")
def emnist_letters(*, split: TaskSplit = "test", path: str | None = None) -> Dataset:
    """EMNIST letters: handwritten letters in 26 classes (from the hub).

    Args:
        split: train or test.
        path: a hub id or a local copy; tanganke/emnist_letters when not given.
    """
    home = "tanganke/emnist_letters"
    return HubTask("emnist_letters", home).load(split, path)


@datasets.register("kmnist")
def kmnist(*, split: TaskSplit = "test", path: str | None = None) -> Dataset:
    """KMNIST: handwritten hiragana in ten classes (from the hub).

    Args:
        split: train or test.
        path: a hub id or a local copy; tanganke/kmnist when not given.
    """
    return HubTask("kmnist", "tanganke/kmnist").load(split, path)


@datasets.register("rendered_sst2")
def rendered_sst2(*, split: Split = "test", path: str | None = None) -> Dataset:
    """Rendered SST-2: reviews of films as pictures of text (from the hub).

    Args:
        split: train, val or test.
        path: a hub id or a local copy; nateraw/rendered-sst2 when not given.
    """
    splits = {"train": "train", "val": "validation", "test": "test"}
    home = "nateraw/rendered-sst2"
    return HubTask("rendered_sst2", home, splits=splits).load(split, path)
