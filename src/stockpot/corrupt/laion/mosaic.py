"""Mosaic: the picture put together from other pictures."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.corrupt import corruptions
from stockpot.corrupt.constants import Constants
from stockpot.corrupt.draws import Draws
from stockpot.corrupt.laion.strengths import SIDE
from stockpot.corrupt.levels import truncate
from stockpot.corrupt.other_pictures import PROCEDURAL, other_pictures


@corruptions.register("mosaic", paper="arXiv:2506.16950", family="LAION-C")
def mosaic(
    pixels: Tensor, constants: Constants, draws: Draws, *, tiles: str = PROCEDURAL
) -> Tensor:
    """Replace every tile of the picture by the small picture of the nearest mean colour.

    Args:
        pixels: the pictures.
        constants: the side of a tile.
        draws: not needed.
        tiles: which small pictures: `procedural` patterns, or a dataset or folder.
    """
    side = max(2, round(constants[0] * min(pixels.shape[2:]) / SIDE))
    return put_together(pixels, other_pictures(tiles, side, pixels.device))


def put_together(pixels: Tensor, pictures: Tensor) -> Tensor:
    """A mosaic of pictures K x 3 x S x S, chosen by their mean colour."""
    side = pictures.shape[-1]
    height, width = pixels.shape[2:]
    padded = F.pad(pixels.float(), (0, -width % side, 0, -height % side), mode="replicate")
    wanted = F.avg_pool2d(padded, side)
    keys = pictures.mean((2, 3))
    rows, columns = wanted.shape[2:]
    points = wanted.flatten(2).transpose(1, 2)
    # Picture by picture, so that the nearest is the same in any batch.
    nearest = [_nearest(each, keys) for each in points]
    chosen = torch.stack(nearest).view(-1, rows, columns) if nearest else points[..., 0].long()
    laid = pictures[chosen].permute(0, 3, 1, 4, 2, 5) if nearest else padded
    whole = laid.reshape(len(pixels), 3, *padded.shape[2:])
    return truncate(whole[..., :height, :width].contiguous())


def _nearest(points: Tensor, keys: Tensor) -> Tensor:
    apart = [(points[:, channel, None] - keys[:, channel]).square_() for channel in range(3)]
    return (apart[0] + apart[1] + apart[2]).argmin(1)
