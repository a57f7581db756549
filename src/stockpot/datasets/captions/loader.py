"""Captioned pictures from several datasets, as contrastive training wants them.

Only training images are ever taken (`fit`, where a set holds images out for validation), and of
each dataset only a share, so that a foundation model trained on them knows every task a little and
an expert has something to add. Further images may be described by their kind alone ("a photo of a
pet"): of those a model learns what there is to see, not what it is called.
"""

from __future__ import annotations

import hashlib
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.datasets import datasets
from stockpot.datasets.captions.phrases import (
    CLOTHES,
    DIGITS,
    KINDS,
    PHOTOGRAPHS,
    SKETCHES,
    captions,
    icon_captions,
)
from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.datasets.load import load_dataset
from stockpot.errors import BadParameterError
from stockpot.types import Seed

_CHUNK = 2048


class Source(NamedTuple):
    """A dataset as a source of captions: how its pictures are called, and what is said."""

    name: str
    what: str
    templates: tuple[str, ...]


SOURCES = (
    Source("cifar10", "photo", PHOTOGRAPHS),
    Source("quickdraw", "sketch", SKETCHES),
    Source("mnist", "digit", DIGITS),
    Source("fashion_mnist", "clothing", CLOTHES),
    Source("icons", "icon", ()),
)


class Pictures(NamedTuple):
    """Pictures of one source, each with a subject, and the captions of each subject."""

    pixels: Tensor
    subjects: list[str]
    captions: dict[str, tuple[str, ...]]


@datasets.register("captions")
def captioned(
    *,
    split: Literal["train"] = "train",
    icons: float = 0.5,
    cifar10: float = 0.1,
    quickdraw: float = 0.25,
    mnist: float = 0.05,
    fashion_mnist: float = 0.01,
    kinds: float = 0.0,
    concepts: float = 0.0,
    size: int = 64,
    seed: Seed = 0,
) -> Dataset:
    """Captioned training images of five datasets, for contrastive training.

    A class is a subject in one source ("sketch: cat"); its prompts are all its captions.

    Args:
        split: train; there is no other, since test images must stay unseen.
        icons: the share of the icons' training images that is taken.
        cifar10: the share of CIFAR-10's training images.
        quickdraw: the share of Quick Draw's training images.
        mnist: the share of MNIST's training images.
        fashion_mnist: the share of Fashion-MNIST's training images.
        kinds: a further share of CIFAR-10's, MNIST's and Fashion-MNIST's images, described by
            their kind alone.
        concepts: a further share of the icons, described by what they show and not by their class.
        size: the side to which all are brought.
        seed: which images are taken.
    """
    shares = {"icons": icons, "cifar10": cifar10, "quickdraw": quickdraw}
    shares |= {"mnist": mnist, "fashion_mnist": fashion_mnist}
    for name, share in (shares | {"kinds": kinds, "concepts": concepts}).items():
        if not 0 <= share <= 1:
            raise BadParameterError(f"captions: {name}: expected a share of 0 to 1, got {share}.")
    classes: dict[str, tuple[str, ...]] = {}
    subjects: list[str] = []
    pixels, marks, origins = [], [], []
    for source in SOURCES:
        unnamed = {"icons": concepts, "quickdraw": 0.0}.get(source.name, kinds)
        if not shares[source.name] + unnamed:
            continue  # of a dataset that gives nothing, nothing has to be fetched
        # Icons hold their own validation images out of train.
        whole = load_dataset(source.name, split="train" if source.name == "icons" else "fit")
        order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(seed))
        named = round(shares[source.name] * len(whole))
        further = named + round(unnamed * len(whole))
        for rows, with_names in ((order[:named], True), (order[named:further], False)):
            if not len(rows):
                continue
            data = whole.take(rows.sort().values)
            said = _said(source, data, with_names)
            classes |= said.captions
            subjects += said.subjects
            pixels.append(_resized(said.pixels, size))
            marks.append(data.fingerprint)
            origins += [source.name] * len(data)
    if not subjects:
        raise BadParameterError("captions: every share is 0, so there is no picture.")
    number = {name: index for index, name in enumerate(classes)}
    mark = hashlib.sha256(repr((marks, size, tuple(classes.items()))).encode()).hexdigest()
    return Dataset(
        name="captions",
        split=split,
        images=TensorImages(torch.cat(pixels)),
        labels=torch.tensor([number[name] for name in subjects]),
        classes=tuple(classes),
        fingerprint=mark,
        licence="that of each source",
        templates=("{}",),
        prompts=tuple(classes.values()),
        columns={"source": tuple(origins)},
    )


def _said(source: Source, data: Dataset, with_names: bool) -> Pictures:
    """The pictures with captions that name their classes, or with captions that do not."""
    pixels = torch.cat([batch.images for batch in data.batches(_CHUNK)])
    classes = [data.classes[label] for label in data.labels.tolist()]
    if source.name == "icons":
        what = source.what if with_names else f"{source.what} of a concept"
        concepts = [f"{what}: {name}" for name in data.columns["concept"]]
        told = classes if with_names else [None] * len(classes)
        rows = zip(concepts, data.columns["concept"], data.columns["codepoint"], told, strict=True)
        return Pictures(
            pixels,
            concepts,
            {key: icon_captions(name, code, kind) for key, name, code, kind in rows},
        )
    what, said_of = source.what, {name: name for name in data.classes}
    if not with_names:
        what = f"{source.what} of a kind"
        said_of = {name: kind for kind, names in KINDS[source.name].items() for name in names}
    subjects = [f"{what}: {said_of[name]}" for name in classes]
    spoken = {f"{what}: {said}": captions(said, source.templates) for said in said_of.values()}
    return Pictures(pixels, subjects, spoken)


def _resized(pixels: Tensor, size: int) -> Tensor:
    if pixels.shape[-2:] == (size, size):
        return pixels.contiguous()
    parts = []
    for start in range(0, len(pixels), _CHUNK):
        chunk = pixels[start : start + _CHUNK].float()
        larger = F.interpolate(chunk, size=(size, size), mode="bicubic", antialias=True)
        parts.append(larger.clamp(0, 255).round().to(torch.uint8))
    return torch.cat(parts)
