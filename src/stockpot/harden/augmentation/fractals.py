"""Fractals of iterated function systems, drawn by the chaos game: structure, and nothing meant.

A handful of random affine maps that contract, each with a colour. Many points jump from map to map;
where they pass often the picture is bright, in the mean colour of the maps that led there. The n-th
fractal of a size is the same picture everywhere.
"""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

_POINTS = 300
_FIRST = 15
"""Jumps before a point lies on the attractor."""
_JUMPS = 60
_MAPS = (2, 6)
"""The fewest maps of a system, and one more than the most."""


def fractals(count: int, size: int) -> Tensor:
    """So many different fractals, N x 3 x size x size in [0, 1]."""
    return torch.stack([fractal(number, size) for number in range(count)])


def fractal(number: int, size: int) -> Tensor:
    """One fractal on a coloured ground, 3 x size x size."""
    draw = Generator().manual_seed(number)
    linear, shift = system(draw)
    hues = torch.rand(len(linear), 3, generator=draw)
    # Maps that shrink less are taken more often, so that the picture is filled evenly.
    weights = torch.linalg.det(linear).abs().clamp(min=0.02)
    points, colours = attractor(linear, shift, hues, weights, draw)
    low, high = points.amin(dim=0), points.amax(dim=0)
    cells = ((points - low) / (high - low).clamp(min=1e-6) * (size - 1)).round().long()
    place = cells[:, 1] * size + cells[:, 0]
    hits = torch.zeros(size * size).scatter_add_(0, place, torch.ones(len(place)))
    painted = torch.zeros(size * size, 3).index_add_(0, place, colours)
    bright = (1 + hits).log() / (1 + hits.max()).log()
    colour = painted / hits.clamp(min=1)[:, None]
    ground = torch.rand(3, generator=draw) * 0.5
    picture = ground + bright.sqrt()[:, None] * (colour - ground)
    return torch.where(hits[:, None] > 0, picture, ground).T.reshape(3, size, size).clamp(0, 1)


def system(draw: Generator) -> tuple[Tensor, Tensor]:
    """Random maps x -> A x + b, each of which brings points nearer to one another."""
    count = int(torch.randint(*_MAPS, (), generator=draw))
    turns = torch.rand(2, count, generator=draw) * 2 * math.pi
    # Singular values below 1 make a contraction, whatever the rotations around them.
    stretch = 0.3 + 0.6 * torch.rand(count, 2, generator=draw)
    signs = torch.where(torch.rand(count, 2, generator=draw) < 0.5, -1.0, 1.0)
    linear = _rotations(turns[0]) @ torch.diag_embed(stretch * signs) @ _rotations(turns[1])
    return linear, torch.rand(count, 2, generator=draw) * 2 - 1


def attractor(
    linear: Tensor, shift: Tensor, colours: Tensor, weights: Tensor, draw: Generator
) -> tuple[Tensor, Tensor]:
    """Points of the attractor of these maps, and a colour for each.

    Args:
        linear: maps x 2 x 2.
        shift: maps x 2.
        colours: of the maps, maps x 3.
        weights: how often each map is taken.
        draw: the jumps.
    """
    taken = torch.multinomial(weights, _POINTS * _JUMPS, replacement=True, generator=draw)
    point, colour = torch.zeros(_POINTS, 2), torch.full((_POINTS, 3), 0.5)
    places, seen = [], []
    for jump, choice in enumerate(taken.view(_JUMPS, _POINTS)):
        point = torch.einsum("nij,nj->ni", linear[choice], point) + shift[choice]
        colour = (colour + colours[choice]) / 2
        if jump >= _FIRST:
            places.append(point)
            seen.append(colour)
    return torch.cat(places), torch.cat(seen)


def _rotations(angles: Tensor) -> Tensor:
    cosine, sine = angles.cos(), angles.sin()
    return torch.stack([cosine, -sine, sine, cosine], dim=1).view(-1, 2, 2)
