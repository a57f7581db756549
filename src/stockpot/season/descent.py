"""Gradient descent on mixing weights: the soup's loss, differentiated through the soup."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.errors import BadParameterError
from stockpot.season.pool import Pool
from stockpot.season.shots import Shots


def mixed_logits(pool: Pool, weights: Tensor, pixels: Tensor) -> Tensor:
    """Logits of the soup with these weights (tensors x members), differentiable in them."""
    flat = pool.base
    for delta, share in zip(pool.deltas, weights[:, 1:].T, strict=True):
        flat = flat + pool.spread(share) * delta
    # No gradient flows through BatchNorm statistics; torch does not differentiate by them.
    buffers = {name for name, _ in pool.model.named_buffers()}
    views = {k: v.detach() if k in buffers else v for k, v in pool.views(flat).items()}
    logits: Tensor = torch.func.functional_call(pool.model, views, (pixels,))
    return logits.float()


def descend(
    pool: Pool,
    shots: Shots,
    free: Tensor,
    weights_of: Callable[[Tensor], Tensor],
    *,
    steps: int,
    lr: float,
    seed: int,
    batch_size: int,
    penalty: Callable[[Tensor], Tensor] | None = None,
    scale: Tensor | None = None,
) -> tuple[Tensor, list[float]]:
    """Minimise the cross-entropy over `free`; returns it and the losses on the way.

    Args:
        pool: the members.
        shots: labelled images.
        free: what is optimised; starts as it is given.
        weights_of: turns it into weights, tensors x members.
        steps: steps of Adam.
        lr: its step size, falling to zero along a cosine.
        seed: the seed of the batches' order.
        batch_size: images per step.
        penalty: added to the loss.
        scale: a log temperature, learned beside the weights.
    """
    if steps < 0 or lr <= 0:
        raise BadParameterError(f"expected steps >= 0 and lr > 0, got {steps} and {lr}.")
    free = free.clone().to(pool.device).requires_grad_(True)
    learned = [free]
    if scale is not None:
        scale = scale.clone().to(pool.device).requires_grad_(True)
        learned.append(scale)
    optimiser = torch.optim.Adam(learned, lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(steps, 1))
    losses = []
    batches = _batches(shots, seed, batch_size)
    for _ in range(steps):
        pixels, labels = next(batches)
        logits = shots.scorer.logits(mixed_logits(pool, weights_of(free), pixels))
        if scale is not None:
            logits = logits * scale.exp()
        loss = F.cross_entropy(logits, labels)
        losses.append(float(loss.detach()))
        if penalty is not None:
            loss = loss + penalty(free)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
    return free.detach(), losses


def _batches(shots: Shots, seed: int, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    pixels = torch.cat(shots.batches)
    generator = torch.Generator().manual_seed(seed)
    if len(shots) <= batch_size:
        while True:
            yield pixels, shots.labels
    while True:
        order = torch.randperm(len(shots), generator=generator).to(pixels.device)
        for rows in torch.split(order, batch_size):
            yield pixels[rows], shots.labels[rows]
