"""What learning takes of memory: as methods state it, for the activations that one image has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.datasets.encoded import EncodedImages
from stockpot.datasets.stream.decoded import most_bytes
from stockpot.fuse.learning.task_pool import AHEAD
from stockpot.models.classifier import Classifier

_FORWARD, _BACK = 3, 4
"""Tensors of the largest size that a layer needs at once, beside what is kept."""
_SOLVING = 4
"""Matrices that solving one for least squares needs."""
_SLACK = 1.3
"""What the allocator takes beyond what is asked of it: 1.1 to 1.25 was measured."""


@dataclass(frozen=True)
class Pass:
    """What one image takes in a pass through the model, in bytes."""

    kept: int
    """Of activations that a backward pass needs."""
    largest: int
    """The largest of them."""
    pixels: int
    """As the network sees it."""


class Fused(NamedTuple):
    """The sizes of what is fused."""

    weights: int
    members: int
    sources: int
    """Members, and the base where there is one."""
    squares: tuple[int, ...]
    """The inputs of every matrix, squared."""


@dataclass(frozen=True)
class Held:
    """What a stage of learning holds beside base, changes, working weights and their gradient."""

    images: int = 0
    """Whose activations are alive at once."""
    backward: bool = True
    """Whether a backward pass needs them all; otherwise those of one layer are alive."""
    mixed: float = 0.0
    """Weights that are made for each of these images, as a share of all that are fused."""
    copies: float = 0.0
    """As many times all fused weights, in fp32."""
    of_each: float = 0.0
    """The same, for every member."""
    grams: float = 0.0
    """As many times the products of the inputs of all linear layers, in fp64."""
    seen: int = 0
    """Images that are kept as the network sees them."""

    def bytes(self, fused: Fused, one: Pass) -> int:
        """In all, where these weights are fused and an image takes so much."""
        weights = 4 * fused.weights
        alive = _BACK * one.largest + one.kept if self.backward else _FORWARD * one.largest
        images = self.images * (alive + weights * self.mixed) + self.seen * one.pixels
        copies = self.copies + self.of_each * fused.members
        products = self.grams * sum(fused.squares)
        if self.grams:  # one of them is being solved
            products += _SOLVING * max(fused.squares, default=0)
        return int(_SLACK * (images + weights * copies + 8 * products))


def one_pass(model: Classifier) -> Pass:
    """Send one image through and count what is kept for the way back."""
    own = {part.untyped_storage().data_ptr() for part in (*model.parameters(), *model.buffers())}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(value: Tensor) -> Tensor:
        storage = value.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage  # held, so that no other takes its place
        return value

    model.eval().requires_grad_(True)
    image = torch.zeros(1, 3, *model.preprocess.size, device=model.device)
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
        model(image)
    sizes = [image.nbytes, *(storage.nbytes() for storage in kept.values())]
    return Pass(sum(sizes), max(sizes), image.nbytes)


def held_pictures(data: Sequence[Dataset], model: Classifier, batch: int) -> int:
    """Bytes of the pictures that lie in memory while batches of them are drawn."""
    total = 0
    known: set[int] = set()
    for images in (one.images for one in data):
        if isinstance(images, TensorImages):
            # Each task picks out batches of its own.
            each = images.pixels[0].nbytes if len(images) else 0
            total += min(len(images), AHEAD * batch) * each
        if id(images) in known:
            continue
        known.add(id(images))
        if isinstance(images, TensorImages):
            total += images.pixels.nbytes
        elif isinstance(images, EncodedImages):
            height, width = model.preprocess.size
            total += sum(len(item) for item in images.items if isinstance(item, bytes))
            total += min(3 * height * width * len(images), most_bytes())
    return total
