"""At which size pictures are corrupted, and how they reach the size of a model.

ImageNet-C was made once, at 224 px, and every network was shown those pictures. A blur of ten
pixels made at 384 px is a weaker one, so corruptions that follow the size of the model cannot be
compared between models. Pictures of many sizes are therefore brought to 224 px as the published
ones were, corrupted, and resized whole: their rim is gone already and is not cut again. Sets of
small pictures of one size (CIFAR-10, Tiny-ImageNet, icons) are corrupted as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from stockpot.datasets.dataset import Batch, Dataset, Images, TensorImages
from stockpot.datasets.encoded import EncodedImages
from stockpot.datasets.pictures import Encoded, opened
from stockpot.datasets.stream.geometry import (
    INCEPTION_SIDE,
    PUBLISHED_SIDE,
    Fit,
    published_crop,
)
from stockpot.datasets.stream.transfer import moved
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize

SizeRule = Literal["published", "model"]
"""`published`: as the benchmark was made. `model`: at the size and crop of the model."""

_CROPPED = (PUBLISHED_SIDE, INCEPTION_SIDE)


@dataclass(frozen=True)
class Sizing:
    """How the pictures of one dataset are corrupted for one model."""

    preprocess: Preprocess
    rule: SizeRule
    native: ImageSize | None
    """The size at which a set of small pictures stays."""

    @property
    def whole(self) -> bool:
        """Whether pictures were cropped before and are only resized for the model."""
        return self.rule == "published" and self.native is None

    def batches(
        self, data: Dataset, size: int, device: torch.device | None = None
    ) -> Iterator[tuple[Batch, Tensor]]:
        """Batches as the model sees clean ones, and their pictures as they are corrupted.

        Both are on the device, if one is given.
        """
        fits = self.fits(data)
        if len(fits) == 1:
            for batch in data.batches(size, fits[0], device):
                yield batch, batch.images
            return
        if not isinstance(data.images, TensorImages):
            for batch, other in data.several(size, fits, device):
                yield batch, other.images
            return
        for batch in data.batches(size, None):
            cut = _cropped_tensor(batch.images, PUBLISHED_SIDE)
            if device is None:
                yield batch, cut
            else:
                yield batch._replace(images=moved(batch.images, device)), moved(cut, device)

    def fits(self, data: Dataset) -> tuple[Fit | None, ...]:
        """How pictures are brought to the model's size, and to the one at which they are corrupted;
        one fit where both are the same.
        """
        own = self.preprocess.fit
        if self.rule == "model" or (self.native and isinstance(data.images, TensorImages)):
            return (own,)
        return own, None if self.native else partial(published_crop, side=PUBLISHED_SIDE)

    def corrupted_size(self, data: Dataset) -> ImageSize:
        """The size at which its pictures are corrupted."""
        if self.rule == "published":
            return self.native or ImageSize(PUBLISHED_SIDE, PUBLISHED_SIDE)
        return _decoded_size(data.images) or self.preprocess.size

    def seen(self, corrupted: Tensor) -> Tensor:
        """Corrupted pictures as they are given to the model."""
        return whole_pictures(corrupted, self.preprocess) if self.whole else corrupted

    @property
    def origin(self) -> str:
        """What decides the pixels that are corrupted; models with one origin share them."""
        if self.native:
            return f"native {self.native}"
        return "published" if self.whole else str(self.preprocess)

    def description(self, shown: ImageSize) -> str:
        """In words, for a result."""
        if self.rule == "model":
            return f"at {shown} (size=model: as the model resizes and crops)"
        if self.native:
            return f"at {shown} (the pictures' own size)"
        target = self.preprocess.size
        after = "" if target == shown else f", then resized whole to {target}"
        return f"at {shown} (size=published: resize 256, crop 224{after})"


def sizing(data: Dataset, preprocess: Preprocess, rule: SizeRule) -> Sizing:
    """Which way the pictures of a dataset go to a model."""
    native = native_size(data, PUBLISHED_SIDE) if rule == "published" else None
    return Sizing(preprocess, rule, native)


def native_size(data: Dataset, side: int) -> ImageSize | None:
    """The size of a set of pictures of one size smaller than `side`; they are not enlarged."""
    images = data.images
    if isinstance(images, EncodedImages) and images.items and min(_header(images.items[0])) >= side:
        return None  # one is enough to know it; fifty thousand headers take seconds
    size = one_size(images)
    return size if size is not None and min(size) < side else None


def corrupted_size(data: Dataset, side: int = PUBLISHED_SIDE) -> ImageSize:
    """The size at which the pictures of a dataset are corrupted."""
    return native_size(data, side) or ImageSize(side, side)


def corruptible(
    data: Dataset, size: int, side: int = PUBLISHED_SIDE, *, part_of: Dataset | None = None
) -> Iterator[Batch]:
    """Batches of pictures as they are corrupted: cut to `side`, or small ones as they are.

    Args:
        data: the pictures.
        size: how many at a time.
        side: to which they are cut.
        part_of: the set that they were taken from, whose sizes decide.
    """
    return _batches(data, size, native_size(part_of or data, side), side)


def _batches(data: Dataset, size: int, native: ImageSize | None, side: int) -> Iterator[Batch]:
    for batch in data.batches(size, None if native else partial(published_crop, side=side)):
        yield batch if native else batch._replace(images=_cropped_tensor(batch.images, side))


def one_size(images: Images) -> ImageSize | None:
    """The size that all pictures have, from their headers; none where they differ."""
    if not isinstance(images, EncodedImages):
        return _decoded_size(images)
    if images not in _sizes:
        _sizes[images] = _one_size(images)
    return _sizes[images]


def _decoded_size(images: Images) -> ImageSize | None:
    return ImageSize(*images.pixels.shape[2:]) if isinstance(images, TensorImages) else None


_sizes: WeakKeyDictionary[EncodedImages, ImageSize | None] = WeakKeyDictionary()
"""Every model of a run asks, and each time all headers would be read."""


def _one_size(images: EncodedImages) -> ImageSize | None:
    found: ImageSize | None = None
    for item in images.items:
        size = _header(item)
        if found not in (None, size):
            return None
        found = size
    return found


def _header(item: Encoded) -> ImageSize:
    with opened(item) as picture:
        return ImageSize(picture.height, picture.width)


def _cropped_tensor(images: Tensor, side: int) -> Tensor:
    """The same for pictures that were decoded at one size; encoded ones are cropped already."""
    if images.shape[2] == images.shape[3] == side:
        return images
    pictures = [published_crop(Image.fromarray(one.numpy()), side) for one in _last_channel(images)]
    return torch.stack([torch.from_numpy(np.array(one)) for one in pictures]).permute(0, 3, 1, 2)


def _last_channel(images: Tensor) -> Tensor:
    return images.permute(0, 2, 3, 1).contiguous()


def was_cropped(height: int, width: int) -> bool:
    """Whether a stored picture has the size of a published one, whose rim is gone already."""
    return height == width and height in _CROPPED


def stored_fit(image: Image.Image, preprocess: Preprocess) -> Image.Image:
    """A stored corrupted picture at the model's size; a published crop is not cropped again."""
    cropped = was_cropped(image.height, image.width)
    return preprocess.squeeze(image) if cropped else preprocess.fit(image)


def stored_pixels(images: Tensor, preprocess: Preprocess) -> Tensor:
    """The same for pictures out of an array."""
    cropped = was_cropped(images.shape[2], images.shape[3])
    return whole_pictures(images, preprocess) if cropped else images


def whole_pictures(images: Tensor, preprocess: Preprocess) -> Tensor:
    """All of uint8 pictures at the size of the model, as uint8."""
    if tuple(images.shape[2:]) == preprocess.size:
        return images
    return _levels(preprocess.squeeze_tensor(images.float() / 255))


def _levels(pixels: Tensor) -> Tensor:
    return (pixels * 255).round_().clamp_(0, 255).to(torch.uint8)
