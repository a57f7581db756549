"""Photo, drawing and icon of the same nine things: a real shift in a shared class space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from stockpot.datasets import datasets
from stockpot.datasets.dataset import Dataset, TensorImages, pixel_fingerprint
from stockpot.datasets.icons.loader import icons
from stockpot.datasets.named.cifar10 import CIFAR10
from stockpot.datasets.named.definition import NamedSplit
from stockpot.datasets.named.quickdraw import QUICKDRAW
from stockpot.errors import BadParameterError, UnknownNameError

Domain = Literal["photo", "drawing", "icon", "every"]
SIDE = 32
"""The side to which pictures of all domains are brought together."""
TESTED_FAMILY = "fluent"
"""The icon family that the test split keeps; the others are its train split."""


class Names(NamedTuple):
    """What one thing is called by Quick, Draw! and as concepts of the icons."""

    drawings: tuple[str, ...]
    concepts: tuple[str, ...]


SHARED: Mapping[str, Names] = {
    "airplane": Names(
        ("airplane",), ("airplane", "small airplane", "airplane departure", "airplane arrival")
    ),
    "automobile": Names(
        ("car", "police car"),
        (
            *("automobile", "oncoming automobile", "sport utility vehicle", "taxi"),
            *("oncoming taxi", "police car", "oncoming police car"),
        ),
    ),
    "bird": Names(
        ("bird", "duck", "owl", "parrot", "swan"),
        (
            *("bird", "black bird", "dove", "eagle", "duck", "swan", "owl", "parrot", "goose"),
            *("peacock", "turkey", "rooster", "chicken", "dodo"),
        ),
    ),
    "cat": Names(("cat",), ("cat", "black cat", "cat face")),
    "dog": Names(("dog",), ("dog", "guide dog", "service dog", "poodle", "dog face")),
    "frog": Names(("frog",), ("frog",)),
    "horse": Names(("horse",), ("horse", "horse face")),
    "ship": Names(
        ("cruise ship", "sailboat", "speedboat", "aircraft carrier"),
        ("sailboat", "speedboat", "passenger ship", "ferry", "motor boat", "ship"),
    ),
    "truck": Names(
        ("truck", "pickup truck", "firetruck"),
        ("fire engine", "pickup truck", "delivery truck", "articulated lorry"),
    ),
}
"""By their names in CIFAR-10, whose deer Quick, Draw! does not have."""
ICON_CLASSES = (
    *("bird", "animal face", "cat face", "four-legged animal"),
    *("car", "boat", "aircraft"),
)
"""The classes of the icons that hold these concepts."""


@datasets.register("domains")
def domains(*, split: NamedSplit = "test", domain: Domain = "photo") -> Dataset:
    """Nine things as photographs (CIFAR-10), drawings (Quick, Draw!) or icons, one class space.

    Args:
        split: train or test, as CIFAR-10 and Quick, Draw! have them, or the parts of train: val,
            and fit without it. Of the icons, the test split is one design family (fluent) and the
            train split all others; their concepts are the same, and the column `icon_split` says
            where `icons` keeps each picture.
        domain: `photo`, `drawing` or `icon`; or `every`: all three at 32 px, each a `style` of the
            same `concept`, so that one can be held out (`protocol=style hold_out=icon`).
    """
    if domain == "every":
        return _every(split)
    known = ("train", "test") if domain == "icon" else ("train", "fit", "val", "test")
    if split not in known:
        raise UnknownNameError(f"split of domains, {domain}", split, known)
    if domain == "photo":
        found = _renamed(CIFAR10.load(split), {name: name for name in SHARED})
    elif domain == "drawing":
        things = {word: name for name, names in SHARED.items() for word in names.drawings}
        found = _renamed(QUICKDRAW.load(split), things)
    elif domain == "icon":
        found = _icons(split)
    else:
        raise BadParameterError(f"domain: expected photo, drawing or icon, got {domain!r}.")
    columns = {**found.columns, "domain": (domain,) * len(found)}
    return replace(found, name="domains", split=split, columns=columns)


def _renamed(data: Dataset, things: Mapping[str, str]) -> Dataset:
    """The rows whose class is one of these things, under the shared names."""
    shared = list(SHARED)
    number = [shared.index(things[name]) if name in things else -1 for name in data.classes]
    labels = torch.tensor(number)[data.labels]
    chosen = data.take((labels >= 0).nonzero()[:, 0])
    kinds = tuple(data.classes[label] for label in chosen.labels.tolist())
    return replace(
        chosen,
        labels=labels[labels >= 0],
        classes=tuple(shared),
        vocabulary=None,
        columns={**chosen.columns, "kind": kinds},
    )


def _every(split: NamedSplit) -> Dataset:
    """The three domains one after another."""
    parts = [domains(split=split, domain=domain) for domain in ("photo", "drawing", "icon")]
    pixels = torch.cat([_resized(part) for part in parts])
    labels = torch.cat([part.labels for part in parts])
    classes = parts[0].classes
    styles = tuple(style for part in parts for style in part.columns["domain"])
    things = tuple(classes[label] for label in labels.tolist())
    return Dataset(
        name="domains",
        split=split,
        images=TensorImages(pixels),
        labels=labels,
        classes=classes,
        fingerprint=pixel_fingerprint(pixels, labels, classes),
        licence=" AND ".join(dict.fromkeys(part.licence for part in parts)),
        columns={"style": styles, "concept": things, "domain": styles},
    )


def _resized(data: Dataset) -> Tensor:
    pixels = torch.cat([batch.images for batch in data.batches(1024)])
    small = interpolate(pixels.float(), (SIDE, SIDE), mode="bilinear", antialias=True)
    return small.round().clamp(0, 255).to(torch.uint8)


def _icons(split: str) -> Dataset:
    every = icons(split="all", classes=ICON_CLASSES)
    things = {word: name for name, names in SHARED.items() for word in names.concepts}
    shared = list(SHARED)
    rows = [
        row
        for row, (concept, family) in enumerate(
            zip(every.columns["concept"], every.columns["family"], strict=True)
        )
        if concept in things and (family == TESTED_FAMILY) == (split == "test")
    ]
    chosen = every.take(rows)
    concepts = chosen.columns["concept"]
    columns = {key: chosen.columns[key] for key in ("concept", "style", "family")}
    return replace(
        chosen,
        labels=torch.tensor([shared.index(things[concept]) for concept in concepts]),
        classes=tuple(shared),
        columns={**columns, "kind": concepts, "icon_split": chosen.columns["split"]},
    )
