"""The diagonal of the Fisher information of the working model, on images of one task."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from stockpot.datasets.dataset import Batch
from stockpot.fuse.learning.task_pool import Task, TaskPool

Square = Literal["sample", "batch"]


def information(
    pool: TaskPool,
    task: Task,
    batches: Iterable[Batch],
    *,
    square: Square,
    exact: bool,
    chunk: int,
) -> Tensor:
    """The mean over images of squared gradients of the log-likelihood, as a flat vector.

    Args:
        pool: its working model is the member.
        task: whose head is used.
        batches: images.
        square: square per image, or per batch.
        exact: take the expectation over classes outside the square.
        chunk: images whose gradients are held at once.
    """
    total = torch.zeros_like(pool.flat)
    count = 0
    pool.adopt(task)
    for batch in batches:
        pixels = pool.seen(batch.images)
        count += len(pixels)
        if square == "batch":
            _add_batch(pool, pixels, total)
        else:
            _add_samples(pool, pixels, total, exact=exact, chunk=chunk)
    return total / max(count, 1)


def _joint(logits: Tensor) -> Tensor:
    """Its gradient's square stands for the expectation over classes, with cross terms."""
    return (logits.softmax(dim=-1).detach().sqrt() * logits.log_softmax(dim=-1)).sum()


def _add_batch(pool: TaskPool, pixels: Tensor, total: Tensor) -> None:
    pool.zero_gradient()
    _joint(pool.model.network(pixels).float()).backward()  # type: ignore[no-untyped-call]
    total += pool.gradient**2


def _add_samples(pool: TaskPool, pixels: Tensor, total: Tensor, *, exact: bool, chunk: int) -> None:
    network = pool.model.network
    weights = {
        place.removeprefix("network."): value.detach()
        for place, value in pool.model.named_parameters()
        if value.requires_grad
    }
    spans = {
        place.removeprefix("network."): span
        for place, span in zip(pool.places, pool.spans, strict=True)
    }

    def logits(values: dict[str, Tensor], image: Tensor) -> Tensor:
        found: Tensor = functional_call(network, values, (image[None],))
        return found[0].float()

    def joint(values: dict[str, Tensor], image: Tensor) -> Tensor:
        return _joint(logits(values, image))

    def of_class(values: dict[str, Tensor], image: Tensor, number: Tensor) -> Tensor:
        return (logits(values, image).log_softmax(dim=-1) * number).sum()

    # Fused attention kernels cannot be vectorised over images; the plain one can.
    for part in torch.split(pixels, chunk):
        if not exact:
            with sdpa_kernel(SDPBackend.MATH):
                gradients = vmap(grad(joint), in_dims=(None, 0))(weights, part)
            for place, value in gradients.items():
                total[spans[place]] += (value**2).sum(dim=0).reshape(-1)
            continue
        with torch.no_grad():
            shares = network(part).float().softmax(dim=-1)
        for number in range(shares.shape[1]):
            hot = torch.zeros_like(shares[0])
            hot[number] = 1
            with sdpa_kernel(SDPBackend.MATH):
                gradients = vmap(grad(of_class), in_dims=(None, 0, None))(weights, part, hot)
            for place, value in gradients.items():
                rows = value.flatten(1)
                total[spans[place]] += (shares[:, number, None] * rows**2).sum(dim=0)
