"""ImageNet-R and ImageNet-A: 200 of the 1000 classes each, 86 of them in both."""

from __future__ import annotations

from stockpot.datasets import datasets
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.natural.classes import imagenet_classes, imagenet_names, subset
from stockpot.datasets.natural.layout import Layout, NaturalSet
from stockpot.datasets.natural.public import Source, load_public
from stockpot.datasets.stream.file_check import OnBroken


def _two_hundred(name: str, which: str, folder: str) -> NaturalSet:
    places = subset(which)
    numbers = {imagenet_classes()[place].wnid: number for number, place in enumerate(places)}
    names = tuple(imagenet_names()[place] for place in places)
    layout = Layout((folder, folder.replace("-", "_")), (folder,))
    return NaturalSet(name, layout, names, numbers.get, places, "MIT")


RENDITION = _two_hundred("imagenet_r", "r", "imagenet-r")
ADVERSARIAL = _two_hundred("imagenet_a", "a", "imagenet-a")


@datasets.register("imagenet_r", paper="arXiv:2006.16241")
def imagenet_r(
    *,
    path: str,
    config: str | None = None,
    image: str | None = None,
    label: str | None = None,
    hub_split: str | None = None,
    on_broken: OnBroken = "stop",
) -> Dataset:
    """ImageNet-R: 30,000 paintings, toys, cartoons and other renditions of 200 classes.

    Args:
        path: the folder `imagenet-r` of 200 WordNet-id folders, a folder of several sets, or a
            hub id.
        config: the configuration of a hub dataset that has several.
        image: the hub data's column of pictures; found when not given.
        label: the hub data's column of labels, such as that of the WordNet ids.
        hub_split: the split as the hub names it.
        on_broken: what to do with files that cannot be decoded: stop and name them, or skip them.
    """
    source = Source(path, config, image, label, on_broken, hub_split)
    return load_public(RENDITION, source, "test")


@datasets.register("imagenet_a", paper="arXiv:1907.07174")
def imagenet_a(
    *,
    path: str,
    config: str | None = None,
    image: str | None = None,
    label: str | None = None,
    hub_split: str | None = None,
    on_broken: OnBroken = "stop",
) -> Dataset:
    """ImageNet-A: 7,500 photographs of 200 classes that a ResNet-50 gets wrong.

    Args:
        path: the folder `imagenet-a` of 200 WordNet-id folders, a folder of several sets, or a
            hub id.
        config: the configuration of a hub dataset that has several.
        image: the hub data's column of pictures; found when not given.
        label: the hub data's column of labels, such as that of the WordNet ids.
        hub_split: the split as the hub names it.
        on_broken: what to do with files that cannot be decoded: stop and name them, or skip them.
    """
    source = Source(path, config, image, label, on_broken, hub_split)
    return load_public(ADVERSARIAL, source, "test")
