"""Affine weights by gradient descent on a few labelled images, instead of a grid."""

from __future__ import annotations

import re
from typing import Literal

import torch
from torch import Tensor

from stockpot.season import seasoners
from stockpot.season.choice import Choice, Context, need_shots
from stockpot.season.descent import descend
from stockpot.season.pool import Pool
from stockpot.season.shots import Shots

Scope = Literal["global", "block", "tensor"]


@seasoners.register("gradient")
def gradient(
    pool: Pool,
    shots: Shots,
    context: Context,
    *,
    scope: Scope = "global",
    steps: int = 60,
    lr: float = 0.05,
    penalty: float = 0.1,
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
    start = torch.full((count, len(pool) - 1), 1 / len(pool))

    def weights_of(free: Tensor) -> Tensor:
        rows = torch.cat([1 - free.sum(dim=1, keepdim=True), free], dim=1)
        return rows[groups]

    def pull(free: Tensor) -> Tensor:
        rows = torch.cat([1 - free.sum(dim=1, keepdim=True), free], dim=1)
        centre = rows.mean(dim=0, keepdim=True)
        apart = ((rows - centre) ** 2).sum(dim=1).mean()
        return penalty * (((centre - 1 / len(pool)) ** 2).sum() + apart)

    free, losses = descend(
        pool, shots, start, weights_of, steps=steps, lr=lr, seed=context.seed,
        batch_size=context.batch_size, penalty=pull,
    )  # fmt: skip
    rows = weights_of(free).double().cpu()
    rows[:, 0] = 1 - rows[:, 1:].sum(dim=1)
    images = 3 * steps * min(len(shots), context.batch_size)  # a backward pass counts as two
    notes = {"groups": count, "loss": [losses[0], losses[-1]] if losses else []}
    return Choice(rows[0] if scope == "global" else rows, images=images, notes=notes)


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
