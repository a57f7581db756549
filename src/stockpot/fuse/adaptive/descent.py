"""Gradient descent on mixing coefficients: AdaMerging's loop, with or without a mask."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from stockpot.fuse.adaptive.entropy import Adaptation
from stockpot.fuse.learning.bookmark import Losses, Stateful, Values
from stockpot.fuse.learning.task_pool import TaskPool

Layers = Literal["task", "layer"]


def start(pool: TaskPool, layers: Layers, init: float) -> Tensor:
    """The first coefficients: one per member, or one per member and tensor."""
    columns = len(pool.names) if layers == "layer" else 1
    return torch.full((len(pool), columns), init, device=pool.device)


def spread(pool: TaskPool, coefficients: Tensor) -> Tensor:
    """Coefficients as members x tensors."""
    return coefficients.expand(len(pool), len(pool.names))


def gather(coefficients: Tensor, gradient: Tensor) -> Tensor:
    """A gradient by tensors as a gradient of the coefficients."""
    return gradient if coefficients.shape[1] > 1 else gradient.sum(dim=1, keepdim=True)


def descend(
    pool: TaskPool,
    adaptation: Adaptation,
    coefficients: Tensor,
    *,
    steps: int,
    lr: float,
    form: Callable[[Tensor], None] | None = None,
    pull: Callable[[], Tensor] | None = None,
    clamp: bool = False,
    beside: Mapping[str, Stateful] | None = None,
    stage: str = "learning coefficients",
) -> tuple[Tensor, list[Tensor]]:
    """Minimise the summed entropy over the coefficients with Adam.

    Args:
        pool: the members.
        adaptation: gives loss and gradient.
        coefficients: where to start.
        steps: steps of Adam.
        lr: its step size.
        form: makes the working model from coefficients by tensors; the pool's own by default.
        pull: the gradient by tensors after the backward passes; the pool's own by default.
        clamp: keep coefficients in [0, 1].
        beside: what an earlier stage learned, to be kept with a bookmark of this one.
        stage: what is being learned, where a method does so more than once.
    """
    form, pull = form or pool.form, pull or pool.pull
    coefficients = coefficients.clone().requires_grad_(True)
    optimiser = torch.optim.Adam([coefficients], lr=lr)
    losses = Losses()
    for _ in pool.walk(
        stage, steps, coefficients=Values(values=coefficients),
        optimiser=optimiser, draws=adaptation, entropies=losses, **(beside or {}),
    ):  # fmt: skip
        form(spread(pool, coefficients.detach()))
        pool.zero_gradient()
        losses.append(adaptation.backward())
        coefficients.grad = gather(coefficients, pull())
        optimiser.step()
        if clamp:
            coefficients.data.clamp_(0, 1)
    return coefficients.detach(), losses


def summary(found: Sequence[Tensor]) -> dict[str, float | int]:
    """What to remember of a descent: where the loss began and where it ended."""
    if not found:
        return {"steps": 0}
    losses: list[float] = torch.stack([loss.cpu() for loss in found]).tolist()
    tail = losses[-max(1, len(losses) // 20) :]
    head = losses[: max(1, len(losses) // 20)]
    return {
        "steps": len(losses),
        "entropy_first": sum(head) / len(head),
        "entropy_last": sum(tail) / len(tail),
    }
