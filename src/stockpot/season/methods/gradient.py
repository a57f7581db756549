"""Affine weights by gradient descent on a few labelled images, instead of a grid."""

from __future__ import annotations

import re
from typing import Literal

import torch
from torch import Tensor

from stockpot.pool.pool import Pool
from stockpot.season import seasoners
from stockpot.season.choice import Choice, Context, need_shots
from stockpot.season.shots import Shots
from stockpot.types import Natural, NonNegative, Positive

Scope = Literal["global", "block", "tensor"]


@seasoners.register("gradient")
def gradient(
    pool: Pool,
    shots: Shots,
    context: Context,
    *,
    scope: Scope = "global",
    steps: Natural = 60,
    lr: Positive = 0.05,
    penalty: NonNegative = 0.1,
) -> Choice:
    """Descend the soup's cross-entropy on the images seen, starting from equal weights.

    Weights sum to 1 and may leave [0, 1]. A quadratic penalty draws them to equal ones, and the
    weights of blocks or tensors to each other, so that ten images cannot carry them far.

    Args:
        scope: one weight per member (`global`), per member and `block`, or per member and `tensor`.
        steps: steps of Adam.
        lr: its step size, falling to zero.
        penalty: strength of the pull to equal weights.
    """
    need_shots("gradient", shots)
    groups = torch.tensor(_groups(pool, scope), device=pool.device)
    count = int(groups.max()) + 1

    def weights_of(free: Tensor) -> Tensor:
        """Members x groups; the first member's are what the others leave."""
        return torch.cat([1 - free.sum(dim=0, keepdim=True), free])

    def pull(weights: Tensor) -> Tensor:
        centre = weights.mean(dim=1, keepdim=True)
        apart = ((weights - centre) ** 2).sum(dim=0).mean()
        return penalty * (((centre - 1 / len(pool)) ** 2).sum() + apart)

    start = torch.full((len(pool) - 1, count), 1 / len(pool), device=pool.device)
    free = start.requires_grad_(True)
    optimiser = torch.optim.Adam([free], lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(steps, 1))
    batches = shots.epochs(context.seed, context.batch_size)
    losses = []
    tell = context.told("learning weights")
    pool.watch()
    try:
        for _, (pixels, rows) in zip(range(steps), batches, strict=False):
            weights = weights_of(free)
            by_tensor = weights[:, groups]
            pool.form(by_tensor.detach())
            pool.settle()
            pool.zero_gradient()
            loss = shots.losses(pool.model(pixels).float(), rows).mean()
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(float(loss.detach()))
            optimiser.zero_grad()
            # The soup's part of the gradient comes through the pool, the penalty's directly.
            torch.autograd.backward([by_tensor, pull(weights)], [pool.pull(), None])
            optimiser.step()
            schedule.step()
            tell(len(losses), steps)
    finally:
        pool.watch(False)
    found = weights_of(free.detach().double()).cpu()[:, groups.cpu()]
    images = 3 * steps * min(len(shots), context.batch_size)  # a backward pass counts as two
    notes = {"groups": count, "loss": [losses[0], losses[-1]] if losses else []}
    return Choice(found[:, 0] if scope == "global" else found, images=images, notes=notes)


def _groups(pool: Pool, scope: Scope) -> list[int]:
    """For each tensor the number of its group."""
    if scope == "global":
        return [0] * len(pool.names)
    if scope == "tensor":
        return list(range(len(pool.names)))
    keys = [_block(name) for name in pool.names]
    numbers = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    return [numbers[key] for key in keys]


def _block(name: str) -> str:
    """The part of a name up to its first number, or its module where there is none."""
    numbered = re.match(r"(.*?\.\d+)\.", name)
    return numbered[1] if numbered else name.rpartition(".")[0]
