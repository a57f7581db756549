"""The learned soup: a softmax over members for every tensor (arXiv:2203.05482, appendix)."""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.season import seasoners
from stockpot.season.choice import Choice, Context, need_shots
from stockpot.season.descent import descend
from stockpot.season.pool import Pool
from stockpot.season.shots import Shots


@seasoners.register("learned", paper="arXiv:2203.05482")
def learned(
    pool: Pool, shots: Shots, context: Context, *, steps: int = 60, lr: float = 0.05
) -> Choice:
    """Learn convex weights for every tensor, and one temperature, by gradient descent.

    The softmax allows no extrapolation; `gradient` does. The temperature only serves the learning:
    it changes no prediction, and the saved model goes without.

    Args:
        steps: steps of Adam.
        lr: its step size, falling to zero.
    """
    need_shots("learned", shots)

    def weights_of(free: Tensor) -> Tensor:
        return free.softmax(dim=1)

    free, losses = descend(
        pool, shots, torch.zeros(len(pool.names), len(pool)), weights_of, steps=steps, lr=lr,
        seed=context.seed, batch_size=context.batch_size, scale=torch.zeros(()),
    )  # fmt: skip
    rows = weights_of(free.double()).cpu()
    images = 3 * steps * min(len(shots), context.batch_size)  # a backward pass counts as two
    return Choice(rows, images=images, notes={"loss": [losses[0], losses[-1]] if losses else []})
