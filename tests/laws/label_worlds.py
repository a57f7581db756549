"""Small worlds, one for every way in which outputs can meet labels, with a model that reads.

Every picture spells one output of the model in its first two rows. In the `right` pictures that is
an output which the world's labels call right, in the `wrong` ones an output which they do not; so
whoever scores the reader must find 1 on the first and 0 on the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import nn

from pico import make_classifier
from stockpot.datasets.dataset import Dataset, TensorImages, pixel_fingerprint
from stockpot.datasets.natural.classes import (
    categories,
    imagenet_classes,
    imagenet_names,
    objectnet_classes,
    subset,
)
from stockpot.models.classifier import Classifier

SIDE = 16


class Reads(nn.Module):
    """Answers the output that a picture spells; smooth, so that searches can climb."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        numbers = torch.arange(outputs)
        self.levels = nn.Parameter(torch.stack([numbers // 32, numbers % 32], dim=1) * 8 / 255)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        seen = pixels[:, :, :2].mean(dim=(1, 3))
        return -500 * (seen[:, None] - self.levels).abs().sum(dim=2)


class World(NamedTuple):
    """Class names of model and data; labels, and outputs that are right and wrong for them."""

    name: str
    model_classes: tuple[str, ...]
    data_classes: tuple[str, ...]
    labels: tuple[int, ...]
    right: tuple[int, ...]
    wrong: tuple[int, ...]
    accepted: tuple[str, ...] = ()

    def model(self) -> Classifier:
        return make_classifier(Reads(len(self.model_classes)), self.model_classes, SIDE)

    def data(self, shown: Sequence[int]) -> Dataset:
        count = len(shown)
        generator = torch.Generator().manual_seed(3)
        pixels = torch.randint(0, 256, (count, 3, SIDE, SIDE), generator=generator)
        numbers = torch.tensor(shown)
        pixels[:, :, 0] = (numbers // 32 * 8)[:, None, None]
        pixels[:, :, 1] = (numbers % 32 * 8)[:, None, None]
        pixels = pixels.to(torch.uint8)
        labels = torch.tensor(self.labels)
        names = [self.data_classes[label] for label in self.labels]
        following = [self.data_classes[(x + 1) % len(self.data_classes)] for x in self.labels]
        columns = {
            "family": tuple("new" if row % 3 == 0 else "old" for row in range(count)),
            "shape": tuple(names),
            "texture": tuple(following),
        }
        if self.accepted:
            columns["accepted"] = self.accepted
        # The name keeps worlds apart whose pictures and labels are the same.
        mark = pixel_fingerprint(pixels, labels, (self.name, *self.data_classes))
        images = TensorImages(pixels)
        data = Dataset(self.name, "test", images, labels, self.data_classes, mark)
        return replace(data, columns=columns)


ANIMALS = ("ant", "polar bear", "cat", "dog")
FOUR = (0, 1, 2, 3, 3, 2, 1, 0, 1, 2, 0, 3)


def _named(name: str, model: tuple[str, ...], order: Sequence[int]) -> World:
    """The data has the animals; `order` says which output of the model stands for each."""
    right = tuple(order[label] for label in FOUR)
    wrong = tuple(order[(label + 1) % 4] for label in FOUR)
    return World(name, model, ANIMALS, FOUR, right, wrong)


def _several() -> World:
    # The label and the class after it are right; the model always says the one after it.
    accepted = tuple(f"{label} {(label + 1) % 4}" for label in FOUR)
    right = tuple((label + 1) % 4 for label in FOUR)
    wrong = tuple((label + 2) % 4 for label in FOUR)
    return World("several labels", ANIMALS, ANIMALS, FOUR, right, wrong, accepted)


def _several_for_some() -> World:
    """One, two or three right classes, with the names in another order."""
    order = (3, 2, 1, 0)
    model = tuple(ANIMALS[place] for place in order)
    counts = [1 + row % 3 for row in range(len(FOUR))]
    accepted = tuple(
        " ".join(str((label + k) % 4) for k in range(count))
        for label, count in zip(FOUR, counts, strict=True)
    )
    last = [(label + count - 1) % 4 for label, count in zip(FOUR, counts, strict=True)]
    right = tuple(order[each] for each in last)
    wrong = tuple(order[(each + 1) % 4] for each in last)
    return World("several labels for some", model, ANIMALS, FOUR, right, wrong, accepted)


def _imagenet(name: str, model: tuple[str, ...], reverse: bool) -> World:
    """Some classes of ImageNet-R; their outputs stand in the usual order or the other way round."""
    places = subset("r")[:6]
    names = tuple(imagenet_names()[place] for place in places)
    labels = tuple(row % 6 for row in range(12))
    output = [999 - place if reverse else place for place in places]
    right = tuple(output[label] for label in labels)
    wrong = tuple(output[(label + 1) % 6] for label in labels)
    return World(name, model, names, labels, right, wrong)


def _by_ids(name: str, model: tuple[str, ...], first: int) -> World:
    """Data whose classes are WordNet ids; the model's outputs for them begin with `first`."""
    labels = tuple(row % 6 for row in range(12))
    ids = tuple(each.wnid for each in imagenet_classes()[635:641])
    right = tuple(first + label for label in labels)
    wrong = tuple(first + (label + 1) % 6 for label in labels)
    return World(name, model, ids, labels, right, wrong)


def _grouped(name: str, known: tuple[object, ...]) -> World:
    """Several outputs answer a class; the model gives now the first, now the last of them."""
    names = tuple(each.name for each in known)  # type: ignore[attr-defined]
    places = [each.places for each in known]  # type: ignore[attr-defined]
    large = sorted(range(len(known)), key=lambda row: -len(places[row]))[:6]
    labels = tuple(large[row % 6] for row in range(12))
    right = tuple(places[label][-1 if row % 2 else 0] for row, label in enumerate(labels))
    wrong = tuple(places[(label + 1) % len(known)][-1] for label in labels)
    return World(name, imagenet_names(), names, labels, right, wrong)


WORLDS = {
    world.name: world
    for world in (
        _named("plain names", ANIMALS, (0, 1, 2, 3)),
        _named("reordered names", ("Dog", "CAT", "polar_bear", "ant"), (3, 2, 1, 0)),
        _named("some of the classes", ("eel", *ANIMALS[2:], "fox", *ANIMALS[:2]), (4, 5, 1, 2)),
        _named("numbered classes", ("0", "1", "2", "3"), (0, 1, 2, 3)),
        _named("numbered labels", ("LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3"), (0, 1, 2, 3)),
        _several(),
        _several_for_some(),
        _imagenet("wnids", tuple(each.wnid for each in reversed(imagenet_classes())), True),
        _imagenet("words", tuple(each.words for each in imagenet_classes()), False),
        # 638 and 639 are both called maillot.
        _by_ids(
            "ids by first word", tuple(each.words.split(",")[0] for each in imagenet_classes()), 635
        ),
        _by_ids("ids by words", tuple(each.words for each in imagenet_classes()[630:650]), 5),
        _grouped("groups, best", objectnet_classes()),
        _grouped("groups, mean", categories()),
    )
}
