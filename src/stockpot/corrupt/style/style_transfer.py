"""Style transfer: a picture takes over the feature statistics of another (AdaIN)."""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.corrupt import corruptions
from stockpot.corrupt.constants import Constants
from stockpot.corrupt.draws import Draws
from stockpot.corrupt.levels import truncate
from stockpot.corrupt.other_pictures import PROCEDURAL, other_pictures
from stockpot.corrupt.style.features import HAAR, Features, features_of

_STYLES = 64
"""So many style pictures at most."""
_SIDE = 64
_FLAT = 1e-3
"""Channels of smaller spread have no pattern that could be stretched."""


@corruptions.register("style_transfer", paper="arXiv:1703.06868", family="Style")
def style_transfer(
    pixels: Tensor,
    constants: Constants,
    draws: Draws,
    *,
    styles: str = PROCEDURAL,
    features: str = HAAR,
) -> Tensor:
    """Give the picture the style of another: mean and spread of each of its feature channels.

    Args:
        pixels: the pictures.
        constants: how far on the way to the other's statistics.
        draws: which style each picture takes.
        styles: style pictures: `procedural` patterns, or a dataset or folder.
        features: `haar` (colours and details, no model), or an autoencoder such as `small-vqgan`.
    """
    (share,) = constants
    space = features_of(features, pixels.device)
    mean, spread = _statistics(styles, features, pixels.device)
    which = (draws.uniform(()) * len(mean)).long()
    mean, spread = mean[which], spread[which]
    if features == HAAR or not pixels.is_cpu:
        return restyle(pixels, space, mean, spread, share)
    # A CPU's convolutions round differently in batches of other sizes; a picture must not care.
    parts = [
        restyle(one[None], space, its_mean[None], its_spread[None], share)
        for one, its_mean, its_spread in zip(pixels, mean, spread, strict=True)
    ]
    return torch.cat([*parts, pixels[:0]])


def restyle(pixels: Tensor, space: Features, mean: Tensor, spread: Tensor, share: float) -> Tensor:
    """Pictures whose features have moved towards these statistics, N x C each.

    What the features lose of a picture on their way back is put back: a share of 0 changes nothing.
    """
    height, width = pixels.shape[2:]
    right, below = -width % space.stride, -height % space.stride
    values = F.pad(pixels.float(), (0, right, 0, below), mode="replicate")
    content = space.encode(values)
    moved = take_over(content, mean, spread, share)
    changed = values + space.decode(moved) - space.decode(content)
    return truncate(changed[..., :height, :width].contiguous().add_(0.5))


def take_over(content: Tensor, mean: Tensor, spread: Tensor, share: float) -> Tensor:
    """Adaptive instance normalisation, a share of the way."""
    own_mean = content.mean((2, 3), keepdim=True)
    own_spread = content.std((2, 3), correction=0, keepdim=True)
    stretched = (content - own_mean) * (spread[..., None, None] / own_spread.clamp(min=_FLAT))
    return content + share * (stretched + mean[..., None, None] - content)


@lru_cache(maxsize=8)
def _statistics(styles: str, features: str, device: torch.device) -> tuple[Tensor, Tensor]:
    """Mean and spread of every feature channel of each style picture."""
    pictures = other_pictures(styles, _SIDE, device)[:_STYLES]
    space = features_of(features, device)
    found = torch.cat([space.encode(picture[None]) for picture in pictures])
    return found.mean((2, 3)), found.std((2, 3), correction=0)
