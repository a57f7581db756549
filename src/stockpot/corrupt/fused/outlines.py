"""Spatter's edges: weak ones joined to strong ones, and the distance to the nearest."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 512


@triton.jit(do_not_specialize=["height", "width"])
def _grow(ridges, edges, out, height, width, size: tl.constexpr):
    image = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * size + tl.arange(0, size)
    mask = place < height * width
    y, x = place // width, place % width
    plane = image * height * width
    near = tl.zeros((size,), dtype=tl.int32)
    for down in tl.static_range(-1, 2):
        for right in tl.static_range(-1, 2):
            inside = (y + down >= 0) & (y + down < height) & (x + right >= 0) & (x + right < width)
            there = tl.load(edges + plane + place + down * width + right, mask & inside, other=0)
            near = near | there.to(tl.int32)
    ridge = tl.load(ridges + plane + place, mask, other=0).to(tl.int32)
    tl.store(out + plane + place, (near & ridge).to(tl.uint8), mask)


@triton.jit(do_not_specialize=["furthest", "width", "count"])
def _beside(edges, out, furthest, width, count, size: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * size + tl.arange(0, size)
    mask = place < count
    x = (place % width).to(tl.int32)
    least = tl.zeros((size,), dtype=tl.int32) + furthest
    for step in range(furthest):
        left = tl.load(edges + place - step, mask & (x >= step), other=0)
        right = tl.load(edges + place + step, mask & (x + step < width), other=0)
        least = tl.where((left | right) != 0, tl.minimum(least, step), least)
    tl.store(out + place, least.to(tl.uint8), mask)


@triton.jit(do_not_specialize=["furthest", "height", "width"])
def _distance(
    beside, out, furthest, height, width, size: tl.constexpr,
    straight: tl.constexpr, diagonal: tl.constexpr, knight: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * size + tl.arange(0, size)
    mask = place < height * width
    y, plane = place // width, image * height * width
    nearest = tl.zeros((size,), dtype=tl.int32) + furthest * straight
    for number in range(2 * furthest - 1):
        down = number - furthest + 1
        inside = mask & (y + down >= 0) & (y + down < height)
        across = tl.load(beside + plane + place + down * width, inside, other=255).to(tl.int32)
        along = tl.abs(down)
        long, short = tl.maximum(across, along), tl.minimum(across, along)
        cost = tl.where(
            long >= 2 * short,
            short * knight + (long - 2 * short) * straight,
            (long - short) * knight + (2 * short - long) * diagonal,
        )
        nearest = tl.where(across < furthest, tl.minimum(nearest, cost), nearest)
    tl.store(out + plane + place, nearest.to(tl.float32), mask)


def grown(ridge: Tensor, edges: Tensor, rounds: int) -> Tensor:
    """As the growth in `edges.find_edges`, over so many rounds."""
    batch, height, width = ridge.shape
    grid = batch, triton.cdiv(height * width, _BLOCK)
    ridges = ridge.contiguous().view(torch.uint8)
    now, spare = edges.contiguous().view(torch.uint8).clone(), torch.empty_like(ridges)
    for _ in range(rounds):
        _grow[grid](ridges, now, spare, height, width, size=_BLOCK)
        now, spare = spare, now
    return now.view(torch.bool)


def distance(edges: Tensor, furthest: int, costs: tuple[int, int, int]) -> Tensor:
    """As `edges.distance_to_edge`.

    The cheapest path to a point (a, b) away with a >= b has b knight steps and straight ones where
    a >= 2 b, and else knight steps and diagonal ones. It is dearer the further the point lies
    sideways, so of every row only its nearest edge counts.
    """
    batch, height, width = edges.shape
    marks = edges.contiguous().view(torch.uint8)
    beside = torch.empty_like(marks)
    count = marks.numel()
    _beside[(triton.cdiv(count, _BLOCK),)](marks, beside, furthest, width, count, size=_BLOCK)
    out = torch.empty(edges.shape, device=edges.device)
    straight, diagonal, knight = costs
    _distance[(batch, triton.cdiv(height * width, _BLOCK))](
        beside, out, furthest, height, width, size=_BLOCK,
        straight=straight, diagonal=diagonal, knight=knight,
    )  # fmt: skip
    return out
