"""Captioned pictures from several datasets, as contrastive training wants them.

Only training images are ever taken, and of each dataset only a share, so that a foundation model
trained on them knows every task a little and an expert has something to add.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.datasets import datasets
from stockpot.datasets.captions.phrases import (
    CLOTHES,
    DIGITS,
    PHOTOGRAPHS,
    SKETCHES,
    captions,
    icon_captions,
)
from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.datasets.load import load_dataset
from stockpot.errors import BadParameterError

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
    split: str = "train",
    icons: float = 0.5,
    cifar10: float = 0.1,
    quickdraw: float = 0.25,
    mnist: float = 0.05,
    fashion_mnist: float = 0.01,
    size: int = 64,
    seed: int = 0,
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
        size: the side to which all are brought.
        seed: which images are taken.
    """
    if split != "train":
        raise BadParameterError(f"captions: expected split train, got {split!r}.")
    shares = {"icons": icons, "cifar10": cifar10, "quickdraw": quickdraw}
    shares |= {"mnist": mnist, "fashion_mnist": fashion_mnist}
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise BadParameterError(f"captions: {name}: expected a share of 0 to 1, got {share}.")
    classes: dict[str, tuple[str, ...]] = {}
    subjects: list[str] = []
    pixels, marks, origins = [], [], []
    for source in SOURCES:
        data = load_dataset(source.name, split="train")
        count = round(shares[source.name] * len(data))
        if not count:
            continue
        data = data.limited(count, seed)
        said = _said(source, data)
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


def _said(source: Source, data: Dataset) -> Pictures:
    pixels = torch.cat([batch.images for batch in data.batches(_CHUNK)])
    kinds = [data.classes[label] for label in data.labels.tolist()]
    if source.name == "icons":
        concepts = [f"{source.what}: {name}" for name in data.columns["concept"]]
        rows = zip(concepts, data.columns["concept"], data.columns["codepoint"], kinds, strict=True)
        return Pictures(
            pixels,
            concepts,
            {key: icon_captions(name, code, kind) for key, name, code, kind in rows},
        )
    subjects = [f"{source.what}: {kind}" for kind in kinds]
    spoken = {f"{source.what}: {kind}": captions(kind, source.templates) for kind in data.classes}
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
