"""Whose pixels replace the masked ones: for every picture, or every cell, a number in a pool.

The pool is the batch itself, followed by a bank of earlier pictures where one is kept. The paper's
rules are the two of `batch_partners`; the weighted draw serves what goes beyond it.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Generator, Tensor

from stockpot.errors import UserError

Fill = Literal["none", "single", "multi"]
Source = Literal["any", "other_class", "low_relevance"]


def batch_partners(
    n: int, cells: int, fill: Fill, generator: Generator, *, derange: bool
) -> Tensor:
    """The published rules: [images, 1] for `single`, [images, cells] for `multi`.

    `single` is one permutation of the batch, which may leave a picture its own partner; with
    `derange` it never does. `multi` draws each cell's source among the others.
    """
    if n < 2:
        raise UserError(
            "filling masked parts needs a second picture, but the batch holds one.",
            hint="Take batch_size >= 2, or fill=none.",
        )
    if fill == "multi":
        offset = torch.randint(1, n, (n, cells), generator=generator)
        return (torch.arange(n)[:, None] + offset) % n
    order = torch.randperm(n, generator=generator)
    if not derange:
        return order[:, None]
    # One random cycle through all pictures: each gets its successor, so none gets itself.
    partner = torch.empty_like(order)
    partner[order] = order.roll(-1)
    return partner[:, None]


def weighted_partners(weights: Tensor, generator: Generator) -> Tensor:
    """One draw from the pool per row, with probability proportional to the weights.

    Args:
        weights: [images, pool] or [images, pool, cells], zero where a source is not allowed. A
            picture itself must be forbidden; where nothing is allowed, any other picture is.
        generator: on the CPU, so that a seed means the same on every device.
    """
    allowed = weights.sum(dim=1, keepdim=True) > 0
    n, pool = weights.shape[:2]
    others = 1 - torch.eye(n, pool, dtype=weights.dtype, device=weights.device)
    others = others.view(n, pool, *[1] * (weights.ndim - 2))
    weights = torch.where(allowed, weights, others)
    drawn = torch.rand(weights.shape, generator=generator).to(weights.device)
    # The largest u^(1/w) is row i with probability w_i / sum w (Efraimidis and Spirakis).
    keys = drawn.clamp(min=1e-12).log() / weights
    chosen = keys.argmax(dim=1)
    return chosen[:, None] if chosen.ndim == 1 else chosen


def source_weights(
    source: Source,
    fill: Fill,
    masked: Tensor,
    labels: Tensor,
    pool_labels: Tensor,
    pool_objects: Tensor | None,
) -> Tensor:
    """How much each picture of the pool is wanted, per picture or per cell.

    Args:
        source: `any` other picture, one of an `other_class`, or (`low_relevance`) one that shows
            context, not an object, where the picture is masked.
        fill: `single` or `multi`.
        masked: [images, cells], what will be replaced.
        labels: of the batch.
        pool_labels: of the pool, whose first pictures are the batch.
        pool_objects: [pool, cells], where the pool's pictures show their objects.
    """
    n, pool = len(labels), len(pool_labels)
    weights = 1 - torch.eye(n, pool, device=labels.device)
    if source == "other_class":
        weights = weights * (labels[:, None] != pool_labels[None, :])
    if source != "low_relevance" or pool_objects is None:
        return weights if fill == "single" else weights[:, :, None].expand(-1, -1, masked.shape[1])
    context = (~pool_objects).float()
    if fill == "multi":
        return weights[:, :, None] * context[None]
    share = masked.float() @ context.T / masked.sum(dim=1, keepdim=True).clamp(min=1)
    return weights * share
