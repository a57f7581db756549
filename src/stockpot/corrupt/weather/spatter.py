"""Spatter: drops of water (severities 1 to 3) or mud (4 and 5) on the lens."""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.corrupt import corruptions
from stockpot.corrupt.constants import Constants
from stockpot.corrupt.draws import Draws
from stockpot.corrupt.levels import constant, truncate
from stockpot.corrupt.separable import smooth
from stockpot.corrupt.weather.edges import distance_to_edge, find_edges

_WATER = (175.0, 238.0, 238.0)  # pale turquoise
_MUD = (63.0, 42.0, 20.0)
_FAR = 20  # distances from an edge are cut here


@corruptions.register("spatter", paper="arXiv:1903.12261", group="weather", benchmark=False)
def spatter(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Cover parts of the picture with drops of water or splashes of mud."""
    return splash(pixels, constants, draws.normal(pixels.shape[2:]))


def splash(pixels: Tensor, constants: Constants, normal: Tensor) -> Tensor:
    """Spatter from a given standard normal field, N x H x W."""
    mean, deviation, sigma, threshold, strength, is_mud = constants
    liquid = smooth(normal * deviation + mean, sigma)
    values = pixels.float()
    if is_mud:
        # Here the fifth constant is the sigma that softens the splashes' edges.
        cover = smooth((liquid > threshold).float(), strength)[:, None]
        cover = cover * (cover >= 0.8)
        return truncate(values * (1 - cover) + cover * constant(_MUD, pixels.device))
    # Eight bits, wrapping around beyond 255 as the original's cast does.
    layer = (liquid.mul_(liquid >= threshold) * 255).floor_().remainder_(256)
    shine = layer * _relief(layer)
    brightest = shine.amax((1, 2), keepdim=True).clamp(min=1)
    shine = (shine * (strength / brightest))[:, None]
    return truncate(values.add_(shine * constant(_WATER, pixels.device)))


def _relief(layer: Tensor) -> Tensor:
    """How light falls on the drops: their depth, equalised, embossed and smoothed; whole floats."""
    depth = distance_to_edge(find_edges(layer, low=50, high=150), _FAR)
    depth = (_box_sum(depth) / (9 * 65536)).floor_()
    padded = _mirrored(_equalise(depth, _FAR + 1))
    height, width = layer.shape[1:]

    def at(down: int, right: int) -> Tensor:
        return padded[:, 1 + down : 1 + down + height, 1 + right : 1 + right + width]

    embossed = 2 * (at(1, 1) - at(-1, -1)) + at(0, 0)
    embossed = embossed + at(0, 1) + at(1, 0) - at(-1, 0) - at(0, -1)
    return ((_box_sum(embossed.clamp_(0, 255)) + 4.5) / 9).floor_()


def _box_sum(values: Tensor) -> Tensor:
    """Sums of 3 x 3, the border mirrored."""
    padded = _mirrored(values)
    lines = padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]
    return lines[..., :-2] + lines[..., 1:-1] + lines[..., 2:]


def _mirrored(values: Tensor) -> Tensor:
    """One pixel more on each side, the second row and column repeated."""
    values = torch.cat([values[:, 1:2], values, values[:, -2:-1]], 1)
    return torch.cat([values[..., 1:2], values, values[..., -2:-1]], 2)


def _equalise(values: Tensor, levels: int) -> Tensor:
    """Histogram equalisation to 0..255 of integers below `levels`, each image by itself."""
    flat = values.flatten(1).long()
    counts = flat.new_zeros(len(flat), levels).scatter_add_(1, flat, torch.ones_like(flat))
    total = flat.shape[1]
    # The lowest level that occurs becomes 0 and does not count; a flat image stays as it is.
    present = (counts > 0).long().cumsum(1) > 0
    first = torch.where(present.long().cumsum(1) == 1, counts, 0).sum(1, keepdim=True)
    above = (counts.cumsum(1) - first).clamp(min=0).double()
    table = (above * 255 / (total - first).clamp(min=1)).round()
    table = torch.where(first == total, torch.arange(levels, device=flat.device), table)
    return table.float().gather(1, flat).view(values.shape)
