"""Logits and relevance from one forward pass, for vision transformers and convolutional nets.

For transformers it is gradient-weighted attention rollout (Chefer et al., arXiv:2103.15679): each
block's attention is weighted by its gradient, negative parts dropped, heads averaged; the relevance
R starts as the identity and every block, from the first to the last, adds what it mixes:
R <- R + A R. Only the row of the token that decides is wanted, so the product is worked out from
the left, which costs a vector times a matrix per block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from stockpot.errors import UserError
from stockpot.explain.attention import Tower, Watch, attending, find_tower, need_tower
from stockpot.explain.grad_cam import grad_cam, watching_maps
from stockpot.models.classifier import Classifier

Method = Literal["auto", "rollout", "grad_cam"]


class Explained(NamedTuple):
    """Logits (still part of the graph) and the relevance of each cell (not part of it)."""

    logits: Tensor
    relevance: Tensor


def explain_forward(
    model: Classifier,
    pixels: Tensor,
    targets: Tensor | None = None,
    *,
    method: Method = "auto",
    layers: Layers = "all",
) -> Explained:
    """Classify and say where the evidence for the target class lies.

    Args:
        model: any classifier; its parameters or its pixels must require gradients.
        pixels: NCHW, as the classifier takes them.
        targets: the class to explain for every image; the predicted one when left out.
        method: `rollout` for transformers, `grad_cam` for convolutional networks; `auto` chooses.
        layers: rollout over `all` blocks, or the `last` alone.
    """
    tower = find_tower(model.network) if method != "grad_cam" else None
    if method == "rollout":
        tower = need_tower(model.network, "rollout")
    if tower is None:
        with watching_maps(model.network) as maps:
            logits = model(pixels)
        return Explained(logits, grad_cam(maps, target_score(logits, targets)))
    with attending(model.network) as watch:
        logits = model(pixels)
    size = model.preprocess.size
    grid = (size.height // tower.patch[0], size.width // tower.patch[1])
    score = target_score(logits, targets)
    return Explained(logits, rollout(watch, score, tower, grid, layers))


def target_score(logits: Tensor, targets: Tensor | None) -> Tensor:
    """The sum over the batch of each image's target logit; images do not see each other."""
    chosen = logits.argmax(dim=1) if targets is None else targets
    return logits.float().gather(1, chosen[:, None]).sum()


def normalised(relevance: Tensor) -> Tensor:
    """Each image's relevance divided by its largest; nothing is subtracted."""
    largest = relevance.flatten(1).amax(dim=1)
    return relevance / (largest[:, None, None] + 1e-8)


def enlarged(cells: Tensor, size: tuple[int, int]) -> Tensor:
    """Values of cells [images, rows, columns] at every pixel, by nearest neighbour."""
    values = cells[:, None].float()
    grown = torch.nn.functional.interpolate(values, size=size, mode="nearest-exact")[:, 0]
    return grown > 0.5 if cells.dtype == torch.bool else grown


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
