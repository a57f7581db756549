"""The eight standard tasks of task arithmetic (arXiv:2212.04089); MNIST is a named set already."""

from __future__ import annotations

from stockpot.datasets import datasets
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.tasks.definition import HubTask, TaskSplit


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
        path: a hub id or a local copy; tanganke/dtd when not given.
    """
    return HubTask("dtd", "tanganke/dtd").load(split, path)
