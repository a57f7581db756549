"""Canny edges and the distance to the nearest one, batched, after OpenCV.

Spatter's water needs both. The distance is OpenCV's 5 x 5 chamfer metric: the cheapest path of
straight, diagonal and knight steps. Such a path can take its steps in any order, so the metric is
eight one-dimensional minima after each other, each found by doubling the step length. All numbers
are whole and below 2^24, so floats are exact.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.corrupt.fused.kernel import Kernel

_GROWN, _DISTANCE = Kernel("outlines:grown"), Kernel("outlines:distance")
# Costs of a straight, a diagonal and a knight step in 1/65536, OpenCV's 1, 1.4 and 2.1969.
_STRAIGHT, _DIAGONAL, _KNIGHT = 65536, 91750, 143976
_LINES = (
    ((0, 1), _STRAIGHT),
    ((1, 0), _STRAIGHT),
    ((1, 1), _DIAGONAL),
    ((1, -1), _DIAGONAL),
    ((1, 2), _KNIGHT),
    ((1, -2), _KNIGHT),
    ((2, 1), _KNIGHT),
    ((2, -1), _KNIGHT),
)
_TAN_22 = 13573  # tan(22.5 degrees) * 2^15
_LONGEST_WEAK_CHAIN = 32


def find_edges(layer: Tensor, low: int, high: int) -> Tensor:
    """Canny edges of N x H x W levels: thin ridges of the gradient, strong or joined to strong.

    Weak pixels join through at most 32 steps, so that no device has to wait to look whether the
    growth is over; in drops the chains are a few pixels long.
    """
    across, along = _sobel(layer)
    magnitude = across.abs() + along.abs()
    ridge = _is_ridge(magnitude, across, along) & (magnitude > low)
    edges = ridge & (magnitude > high)
    plain = partial(_grown, ridge, edges)
    return _GROWN(plain, layer.device, ridge, edges, _LONGEST_WEAK_CHAIN)


def _grown(ridge: Tensor, edges: Tensor) -> Tensor:
    for _ in range(_LONGEST_WEAK_CHAIN):
        grown = ridge & _widened(_widened(edges, 1), 2)
        if edges.is_cpu and torch.equal(grown, edges):
            break
        edges = grown
    return edges


def _widened(mask: Tensor, axis: int) -> Tensor:
    """The mask and its neighbours on both sides along an axis."""
    size = mask.shape[axis]
    wide = mask.clone()
    wide.narrow(axis, 1, size - 1).logical_or_(mask.narrow(axis, 0, size - 1))
    wide.narrow(axis, 0, size - 1).logical_or_(mask.narrow(axis, 1, size - 1))
    return wide


def _sobel(layer: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient to the right and downwards; outside, the border pixel repeats."""
    padded = F.pad(layer, (1, 1, 1, 1), mode="replicate")
    lines = padded[:, :-2] + 2 * padded[:, 1:-1] + padded[:, 2:]
    columns = padded[..., :-2] + 2 * padded[..., 1:-1] + padded[..., 2:]
    return lines[..., 2:] - lines[..., :-2], columns[:, 2:] - columns[:, :-2]


def _is_ridge(magnitude: Tensor, across: Tensor, along: Tensor) -> Tensor:
    """Where the magnitude is largest along the gradient's direction, one of four."""
    height, width = magnitude.shape[1:]
    padded = F.pad(magnitude, (1, 1, 1, 1))

    def at(down: int, right: int) -> Tensor:
        return padded[:, 1 + down : 1 + down + height, 1 + right : 1 + right + width]

    # OpenCV compares slopes in integers; kept below 2^24 or in powers of two they are exact floats.
    slanted = across.abs() * _TAN_22
    rise = along.abs() * 2**15
    flat = rise < slanted
    steep = rise - across.abs() * 2**16 > slanted
    level = (magnitude > at(0, -1)) & (magnitude >= at(0, 1))
    upright = (magnitude > at(-1, 0)) & (magnitude >= at(1, 0))
    falling = (magnitude > at(-1, -1)) & (magnitude > at(1, 1))
    rising = (magnitude > at(-1, 1)) & (magnitude > at(1, -1))
    is_rising = across * along < 0
    diagonal = ~(flat | steep) & ((is_rising & rising) | (~is_rising & falling))
    return (flat & level) | (steep & upright) | diagonal


def distance_to_edge(edges: Tensor, furthest: int) -> Tensor:
    """The chamfer distance to the nearest edge in 1/65536 px, cut at `furthest` px."""
    plain = partial(_walked, edges, furthest)
    return _DISTANCE(plain, edges.device, edges, furthest, (_STRAIGHT, _DIAGONAL, _KNIGHT))


def _walked(edges: Tensor, furthest: int) -> Tensor:
    limit = furthest * _STRAIGHT
    distance = (~edges).float() * limit
    height, width = distance.shape[1:]
    for (down, right), cost in _LINES:
        steps = 1
        while steps * cost < limit and steps * down < height and steps * abs(right) < width:
            here, there = _overlap(down * steps, right * steps, height, width)
            # Forth and back along the line; the second may use what the first has found.
            for target, source in ((here, there), (there, here)):
                region = distance[:, *target]
                torch.minimum(region, distance[:, *source] + steps * cost, out=region)
            steps *= 2
    return distance


def _overlap(
    down: int, right: int, height: int, width: int
) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
    """The part of a picture and the same part moved by (down, right), both inside."""
    columns = slice(max(0, -right), width - max(0, right))
    moved = slice(max(0, right), width - max(0, -right))
    return (slice(0, height - down), columns), (slice(down, height), moved)
