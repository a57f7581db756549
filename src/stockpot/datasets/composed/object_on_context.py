"""Objects on contexts: icons cut out and laid on surroundings that agree with the class, or not."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stockpot.datasets import datasets
from stockpot.datasets.composed import compose, contexts
from stockpot.datasets.composed.contexts import (
    Backgrounds,
    ContextSource,
    context_source,
    pixels_of,
)
from stockpot.datasets.composed.correlation import Shift, context_numbers, draws_of
from stockpot.datasets.composed.matte import opacity
from stockpot.datasets.dataset import ORIGINAL, Dataset, TensorImages, pixel_fingerprint
from stockpot.datasets.icons.loader import icons
from stockpot.errors import BadParameterError
from stockpot.types import Seed, Split

OBJECTS = (
    *("fruit", "vegetable", "drink", "sweet", "flower"),
    *("clothing", "train", "clock", "electronic device", "heart"),
)
"""Classes of many pictures, none of which is what a photograph of CIFAR-10 shows."""
LINE_ART = ("emojione-monotone", "fluent-high-contrast")
"""Styles that draw outlines alone: on a photograph there would be no object, only lines."""
FACTS = ("concept", "style", "family")
CHUNK = 128
MOST_COVER = 0.95
"""A drawing that fills its frame has no outline to cut along."""


@datasets.register("object_on_context", paper="arXiv:2303.03052")
def object_on_context(
    *,
    split: Split = "test",
    correlation: float = 0.9,
    shift: Shift = "none",
    backgrounds: Backgrounds = "cifar10",
    classes: tuple[str, ...] = OBJECTS,
    family: str | None = None,
    exclude_family: str | None = None,
    copies: int = 4,
    seed: Seed = 0,
) -> Dataset:
    """Icon objects on photographs, textures or other icons, 64 px, with object masks.

    Each class has a context of its own; `correlation` says how often it is seen there. `shift`
    changes nothing but the context: the objects, their places and the masks stay the same.

    Args:
        split: train, val or test. Neither an object's concept nor a photograph is in two of them.
        correlation: the probability that an object is shown in the context of its class; the
            other contexts share the rest.
        shift: `none`; `shuffled`, where every context is equally likely; or `reversed`, where the
            context belongs, as often as `correlation` says, to the next class.
        backgrounds: `cifar10` (ten kinds of photographs), `texture` (twenty) or `icons` (twenty
            other classes); the last two need no download.
        classes: which of the icon classes the objects are; class k has context k.
        family: take objects of one design family only.
        exclude_family: leave one design family out, as in training for a style hold-out.
        copies: pictures made of each object, each in its own size, place and surroundings.
        seed: of the places and the contexts.
    """
    _check(classes, copies)
    cut = _cut_out(icons(split=split, classes=tuple(classes), family=family,
                         exclude_family=exclude_family))  # fmt: skip
    source = context_source(backgrounds, split, classes)
    if len(classes) > len(source.names):
        raise BadParameterError(
            f"classes: {backgrounds} has {len(source.names)} contexts, got {len(classes)} classes.",
            hint="Name fewer classes or choose other backgrounds.",
        )
    rows = np.repeat(np.arange(len(cut.data)), copies)
    labels = cut.data.labels.numpy()[rows]
    chance = draws_of(seed, f"context:{split}", len(rows), 1)[:, 0]
    which = context_numbers(labels, len(classes), correlation, shift, chance)
    pixels, masks = _composed(cut, rows, which, source, split, seed)
    target = torch.from_numpy(labels)
    objects = tuple(str(row) for row in rows)
    return Dataset(
        name="object_on_context",
        split=split,
        images=TensorImages(pixels),
        labels=target,
        classes=tuple(classes),
        fingerprint=pixel_fingerprint(pixels, target, classes),
        licence=" AND ".join(dict.fromkeys((cut.data.licence, source.licence))),
        templates=cut.data.templates,
        columns={
            **{key: tuple(cut.data.columns[key][row] for row in rows) for key in FACTS},
            "object": objects,
            # Copies of one object are not independent of each other.
            **({ORIGINAL: objects} if copies > 1 else {}),
            "context": tuple(source.names[number] for number in which),
            "context_of": tuple(classes[number] for number in which),
        },
        masks=masks,
    )


class _CutOut(NamedTuple):
    """The objects of one split with their opacity."""

    data: Dataset
    pixels: Tensor
    cover: Tensor


def _cut_out(every: Dataset) -> _CutOut:
    chosen = [
        row
        for number in range(len(every.classes))
        for row in (every.labels == number).nonzero()[:, 0].tolist()
        if every.columns["style"][row] not in LINE_ART
    ]
    data = every.take(chosen)
    pixels = pixels_of(data)
    cover = opacity(pixels)
    kept = (cover.mean(dim=(1, 2)) <= MOST_COVER).nonzero()[:, 0]
    return _CutOut(data.take(kept), pixels[kept], cover[kept])


def _composed(
    cut: _CutOut,
    rows: NDArray[np.int64],
    which: NDArray[np.int64],
    source: ContextSource,
    split: str,
    seed: int,
) -> tuple[Tensor, Tensor]:
    places = torch.from_numpy(draws_of(seed, f"place:{split}", len(rows), compose.DRAWS))
    details = torch.from_numpy(draws_of(seed, f"background:{split}", len(rows), contexts.DRAWS))
    pixels = torch.empty(len(rows), 3, contexts.SIZE, contexts.SIZE, dtype=torch.uint8)
    masks = torch.empty(len(rows), contexts.SIZE, contexts.SIZE, dtype=torch.bool)
    for start in range(0, len(rows), CHUNK):
        part = slice(start, start + CHUNK)
        chosen = torch.from_numpy(rows[part])
        layer = compose.placed(cut.pixels[chosen], cut.cover[chosen], places[part])
        pixels[part] = compose.laid_on(layer, source.paint(which[part], details[part]))
        masks[part] = compose.masked(layer)
    return pixels, masks


def _check(classes: tuple[str, ...], copies: int) -> None:
    if copies < 1:
        raise BadParameterError(f"copies: expected at least 1, got {copies}.")
    if len(set(classes)) != len(classes) or len(classes) < 2:
        raise BadParameterError(
            f"classes: expected at least two different icon classes, got {', '.join(classes)}."
        )
