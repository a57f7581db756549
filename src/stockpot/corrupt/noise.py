"""Noise: gaussian, shot, impulse and speckle.

Each corruption draws its field and hands it to a pure function that applies it, so that a test can
feed the fields of another generator.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from stockpot.corrupt import corruptions
from stockpot.corrupt.constants import Constants
from stockpot.corrupt.draws import Draws
from stockpot.corrupt.levels import truncate


@corruptions.register("gaussian_noise", paper="arXiv:1903.12261", group="noise", benchmark=True)
def gaussian_noise(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Add normal noise of one strength to every value, as a sensor does in low light."""
    (deviation,) = constants
    return add_normal(pixels, draws.normal(pixels.shape[1:]), deviation)


def add_normal(pixels: Tensor, normal: Tensor, deviation: float) -> Tensor:
    """Pixels plus `deviation` (in units of white) times a standard normal field."""
    return truncate(pixels.float().add_(normal, alpha=255 * deviation))


@corruptions.register("speckle_noise", paper="arXiv:1903.12261", group="noise", benchmark=False)
def speckle_noise(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Add normal noise in proportion to the value."""
    (deviation,) = constants
    return multiply_normal(pixels, draws.normal(pixels.shape[1:]), deviation)


def multiply_normal(pixels: Tensor, normal: Tensor, deviation: float) -> Tensor:
    """Pixels times one plus `deviation` times a standard normal field."""
    values = pixels.float()
    return truncate(values.addcmul_(values, normal, value=deviation))


@corruptions.register("impulse_noise", paper="arXiv:1903.12261", group="noise", benchmark=True)
def impulse_noise(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Set a share of the values to black or white; each channel is hit by itself."""
    (share,) = constants
    bits = draws.bits(pixels[0].numel()).view(pixels.shape)
    # The upper 31 bits say whether a value is hit, the lowest one with what.
    hit = (bits >> 1) < int(share * 2**31) - 2**30
    return set_impulses(pixels, hit, (bits & 1).bool())


def set_impulses(pixels: Tensor, hit: Tensor, salt: Tensor) -> Tensor:
    """White where hit and salt, black where hit and not salt."""
    # In bit masks, because `where` on bytes is not vectorised on CPUs.
    mask, white = hit.to(torch.uint8) * 255, salt.to(torch.uint8) * 255
    return (pixels & ~mask) | (white & mask)


@corruptions.register("shot_noise", paper="arXiv:1903.12261", group="noise", benchmark=True)
def shot_noise(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Replace every value by a Poisson count of that mean, as light arriving in photons does."""
    (white,) = constants
    columns, threshold, alias = _poisson_tables(white, pixels.device)
    bits = draws.bits(pixels[0].numel()).view(pixels.shape)
    # Walker's alias method: the high bits choose one of `columns` counts, the other bits decide
    # whether to move on to its alias. Exact in distribution, two lookups whatever the mean.
    shift = 32 - (columns.bit_length() - 1)
    column = ((bits >> shift) & (columns - 1)).flatten()
    cell = pixels.int().flatten().mul_(columns).add_(column)
    fraction = (bits & ((1 << shift) - 1)).flatten()
    moves = fraction >= threshold.index_select(0, cell)
    counts = column.addcmul_(alias.index_select(0, cell), moves.int())
    return count_levels(counts.view(pixels.shape), white)


def count_levels(counts: Tensor, white: float) -> Tensor:
    """The grey level of each photon count, white being `white` photons."""
    levels = _photon_levels(white, counts.device)
    return levels.index_select(0, counts.clamp(max=int(white)).flatten()).view(counts.shape)


@lru_cache(maxsize=64)
def _photon_levels(white: float, device: torch.device) -> Tensor:
    # In double precision: one third of 255 must be 85, not 84.
    photons = torch.arange(int(white) + 1, dtype=torch.float64)
    return (photons / white).clamp(0, 1).mul(255).to(torch.uint8).to(device)


@lru_cache(maxsize=64)
def _poisson_tables(white: float, device: torch.device) -> tuple[int, Tensor, Tensor]:
    """For each of 256 levels an alias table over the counts 0 to `white`: thresholds and moves.

    More photons than `white` are clipped to white, so they share the last count.
    """
    last = int(white)
    columns = 1 << last.bit_length()
    rates = torch.arange(256, dtype=torch.float64)[:, None] / 255 * white
    counts = torch.arange(columns, dtype=torch.float64)
    chance = torch.exp(torch.special.xlogy(counts, rates) - rates - torch.lgamma(counts + 1))
    clipped = torch.special.gammainc(torch.full_like(rates, last), rates)
    chance[:, last] = clipped.flatten()
    chance[:, last + 1 :] = 0
    threshold, alias = _alias_tables(chance)
    scaled = (threshold * (2**32 // columns)).round().to(torch.int32)
    move = alias - torch.arange(columns)
    return columns, scaled.flatten().to(device), move.int().flatten().to(device)


def _alias_tables(chance: Tensor) -> tuple[Tensor, Tensor]:
    """Vose's construction for every row: the share of each column kept, and where the rest goes."""
    share = chance / chance.sum(1, keepdim=True) * chance.shape[1]
    kept, alias = [], []
    for rest in share.tolist():
        keep, other = [1.0] * len(rest), list(range(len(rest)))
        poor = [column for column, part in enumerate(rest) if part < 1]
        rich = [column for column, part in enumerate(rest) if part >= 1]
        while poor and rich:
            small, large = poor.pop(), rich[-1]
            keep[small], other[small] = rest[small], large
            rest[large] -= 1 - rest[small]
            if rest[large] < 1:
                poor.append(rich.pop())
        kept.append(keep)
        alias.append(other)
    return torch.tensor(kept, dtype=torch.float64), torch.tensor(alias)
