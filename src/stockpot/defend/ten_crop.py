"""Ten-crop: the mean of the predictions on four corners, the centre, and their mirror images."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from stockpot.defend import defences
from stockpot.defend.defended import Defended
from stockpot.errors import BadParameterError
from stockpot.models.classifier import Classifier
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize


@defences.register("ten_crop", paper="arXiv:1207.0580")
def ten_crop(model: Classifier, *, crop: float | None = None) -> Classifier:
    """Average the class probabilities over ten crops of the resized picture.

    The crops are taken before the model's own centre crop and instead of it, so that the rim is
    not cut twice. A model that crops nothing sees the picture and its mirror image.

    Args:
        crop: side of a crop as a share of the resized picture's, such as 0.875 (224 of 256); the
            model's own share by default.
    """
    if crop is not None and not 0 < crop <= 1:
        raise BadParameterError(f"crop: expected a share above 0 and at most 1, got {crop}.")
    size, wide = model.preprocess.size, resized_only(model.preprocess, crop)
    label = f"ten_crop({size} of {wide.size})"
    if wide.size == size:
        return Defended(model, label, mirrored, views=2)

    def change(pixels: Tensor) -> Tensor:
        return crops(wide.fit_tensor(pixels), size)

    return Defended(model, label, change, views=10, preprocess=wide)


def resized_only(own: Preprocess, crop: float | None = None) -> Preprocess:
    """The model's preprocessing up to its centre crop.

    A picture keeps its middle square (or what has the shape of the input), as in the publication:
    the corners of a long picture would show little of what it is of.
    """
    size, resized = own.size, own.resized
    if crop is not None:
        wide = ImageSize(*(round(side / crop) for side in size))
        return replace(own, size=wide, resized=min(wide) if isinstance(resized, int) else wide)
    if isinstance(resized, ImageSize):
        return replace(own, size=ImageSize(*map(max, resized, size)))
    wide = ImageSize(*(max(side, side * resized // min(size)) for side in size))
    return replace(own, size=wide)


def crops(pixels: Tensor, size: ImageSize) -> Tensor:
    """Ten views of each image, view by view: (10 N) x C x h x w."""
    rows, columns = size
    down, right = pixels.shape[2] - rows, pixels.shape[3] - columns
    # The centre is rounded half to even, as image libraries do.
    corners = (
        (0, 0),
        (0, right),
        (down, 0),
        (down, right),
        (round(down / 2), round(right / 2)),
    )
    views = [pixels[..., top : top + rows, left : left + columns] for top, left in corners]
    return mirrored(torch.cat(views))


def mirrored(pixels: Tensor) -> Tensor:
    """All images, and then their mirror images."""
    return torch.cat([pixels, pixels.flip(3)])
