"""Ten-crop: the mean of the predictions on four corners, the centre, and their mirror images."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from stockpot.defend import defences
from stockpot.defend.defended import Defended
from stockpot.errors import BadParameterError
from stockpot.models.classifier import Classifier


@defences.register("ten_crop", paper="arXiv:1207.0580")
def ten_crop(model: Classifier, *, crop: float = 0.875) -> Classifier:
    """Average the class probabilities over ten crops.

    Args:
        crop: side of a crop as a share of the picture's; 0.875 is 224 of 256.
    """
    if not 0 < crop <= 1:
        raise BadParameterError(f"crop: expected a share above 0 and at most 1, got {crop}.")
    return Defended(model, f"ten_crop(crop={crop})", partial(crops, share=crop), views=10)


def crops(pixels: Tensor, share: float) -> Tensor:
    """Ten views of each image, view by view: (10 N) x C x h x w."""
    height, width = pixels.shape[2:]
    rows, columns = max(1, round(height * share)), max(1, round(width * share))
    down, right = height - rows, width - columns
    # The centre is rounded half to even, as image libraries do.
    corners = (
        (0, 0),
        (0, right),
        (down, 0),
        (down, right),
        (round(down / 2), round(right / 2)),
    )
    views = [pixels[..., top : top + rows, left : left + columns] for top, left in corners]
    return torch.cat([*views, *(view.flip(3) for view in views)])
