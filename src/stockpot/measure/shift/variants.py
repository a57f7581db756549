"""The variants of ImageNet that lie in one folder, and how each of them is scored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.datasets.natural.classes import answers
from stockpot.datasets.natural.cue_conflict import CUE_CONFLICT
from stockpot.datasets.natural.imagenet import SKETCH, STYLIZED, V2, VAL
from stockpot.datasets.natural.layout import NaturalSet, located_under
from stockpot.datasets.natural.objectnet import OBJECTNET
from stockpot.datasets.natural.real import real_labels
from stockpot.datasets.natural.two_hundred import ADVERSARIAL, RENDITION
from stockpot.errors import BadDataError
from stockpot.models.class_space import ClassSpace


class Variant(NamedTuple):
    """A set, and in which reading of the class space it is usually scored."""

    known: NaturalSet
    space: ClassSpace
    convention: str


VARIANTS: Mapping[str, Variant] = {
    "imagenet_v2": Variant(V2["matched-frequency"], "all", "matched-frequency, best of 1000"),
    "imagenet_r": Variant(RENDITION, "subset", "best of its 200"),
    "imagenet_sketch": Variant(SKETCH, "all", "best of 1000"),
    "objectnet": Variant(OBJECTNET, "subset", "best of its 113, any of their outputs, 2 px off"),
    "imagenet_a": Variant(ADVERSARIAL, "subset", "best of its 200"),
    "stylized_imagenet": Variant(STYLIZED, "all", "best of 1000"),
    "imagenet_real": Variant(VAL, "all", "any accepted label, unlabelled left out"),
    "cue_conflict": Variant(CUE_CONFLICT, "subset", "mean probability of 16 categories"),
}
AVERAGED = ("imagenet_v2", "imagenet_r", "imagenet_sketch", "objectnet", "imagenet_a")
"""The five whose mean is the usual accuracy out of distribution."""


def is_here(name: str, root: Path) -> bool:
    """Whether a variant lies in the folder under one of its public names."""
    found = located_under(VARIANTS[name].known, root) is not None
    return found and (name != "imagenet_real" or real_labels(root) is not None)


def load_variant(name: str, root: Path, limit: int | None) -> Dataset:
    """The variant, or a seeded part of it."""
    return load_dataset(name, path=str(root), limit=limit)


def same_classes(data: Dataset, variant: Dataset) -> Dataset:
    """The images of ImageNet whose classes the variant has too, in the variant's class space."""
    own, asked = answers(data.classes), answers(variant.classes)
    if own is None or asked is None or any(len(places) != 1 for places in own):
        raise BadDataError(
            f"imagenet_variants: expected ImageNet's own classes, {data.name} has "
            f"{len(data.classes)}: {', '.join(data.classes[:4])}, ...",
            hint="Measure it with data=imagenet.",
        )
    number = {place: row for row, places in enumerate(asked) for place in places}
    labels = [number.get(own[label][0], -1) for label in data.labels.tolist()]
    rows = [row for row, label in enumerate(labels) if label >= 0]
    return replace(
        data.take(rows),
        labels=torch.tensor([labels[row] for row in rows], dtype=torch.long),
        classes=variant.classes,
    )
