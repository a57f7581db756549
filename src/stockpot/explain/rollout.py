"""Relevance of patches by gradient-weighted attention rollout (Chefer et al., arXiv:2103.15679).

Each block's attention is weighted by its gradient, negative parts dropped, heads averaged; the
relevance R starts as the identity and every block, from the first to the last, adds what it mixes:
R <- R + A R. Only the row of the token that decides is wanted, so the product is worked out from
the left, which costs a vector times a matrix per block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from stockpot.errors import UserError
from stockpot.explain.attention import Tower, Watch

Layers = Literal["all", "last"]


def rollout(
    watch: Watch, score: Tensor, tower: Tower, grid: tuple[int, int], layers: Layers
) -> Tensor:
    """Non-negative relevance of every patch for `score`, as [images, rows, columns].

    The graph of `score` is kept, so that a loss on the same forward pass can still go backwards.
    """
    blocks = watch.blocks if layers == "all" else watch.blocks[-1:]
    if not blocks:
        raise UserError("the network computed no attention that could be watched.")
    pooling = watch.pooling if tower.readout == "pooling" else []
    gradients = torch.autograd.grad(score, [*blocks, *pooling], retain_graph=True)
    mixing = [
        weighted(attention.detach(), gradient)
        for attention, gradient in zip([*blocks, *pooling], gradients, strict=True)
    ]
    tokens = blocks[0].shape[-1]
    patches = grid[0] * grid[1]
    if pooling:
        row = propagate(mixing[-1].mean(dim=1), mixing[: len(blocks)])
    else:
        start = _start(tower, tokens, patches, mixing[0])
        # What the tokens were before any block mixed them is no evidence; it is taken off again
        # (it only shows where the decision reads the mean patch).
        row = propagate(start, mixing) - start
    return row[:, tokens - patches :].reshape(-1, *grid)


def weighted(attention: Tensor, gradient: Tensor) -> Tensor:
    """The mean over heads of the positive part of gradient times attention."""
    return (gradient.float() * attention.float()).clamp_(min=0).mean(dim=1)


def propagate(row: Tensor, mixing: Sequence[Tensor]) -> Tensor:
    """One row of (I + A_n) ... (I + A_1), starting from the row that reads the last block."""
    for block in reversed(mixing):
        row = row + (row[:, None, :] @ block)[:, 0]
    return row


def _start(tower: Tower, tokens: int, patches: int, like: Tensor) -> Tensor:
    row = like.new_zeros(len(like), tokens)
    if tower.readout == "mean":
        row[:, tokens - patches :] = 1 / patches
    elif tower.readout == "two_tokens":
        row[:, :2] = 0.5
    else:
        row[:, 0] = 1
    return row
