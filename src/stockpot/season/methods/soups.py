"""The soups of Wortsman et al.: uniform, greedy, learned, and the line between two models.

How their weights are chosen is in `stockpot.pool.soups`, which `stockpot.fuse` calls too.
"""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import Annotated

import torch
from torch import Tensor

from stockpot.errors import BadParameterError
from stockpot.pool.pool import Pool
from stockpot.pool.soups import Judged, LearnedSoup, equal_weights, line_weights
from stockpot.pool.soups import greedy as choose_greedily
from stockpot.season import seasoners
from stockpot.season.choice import Choice, Context, need_shots
from stockpot.season.evaluate import evaluate
from stockpot.season.matrix import Ties
from stockpot.season.shots import Shots
from stockpot.types import Check, Natural, Positive

Alphas = Annotated[
    tuple[float, ...], Check(lambda value: (value,) if isinstance(value, int | float) else value)
]
"""One or several."""


@seasoners.register("uniform", paper="arXiv:2203.05482")
def uniform(pool: Pool, shots: Shots, context: Context) -> Choice:
    """Equal weights; looks at no image."""
    return Choice(equal_weights(len(pool)))


@seasoners.register("greedy", paper="arXiv:2203.05482")
def greedy(pool: Pool, shots: Shots, context: Context, *, strict: bool = False) -> Choice:
    """Best member first; add the others in turn if the mean does not get worse.

    Args:
        strict: a member must raise the accuracy to be kept; otherwise it must not lower it.
    """
    need_shots("greedy", shots)

    tell, looks = context.told("trying soups"), count(1)

    def judge(weights: Tensor) -> Judged:
        found = evaluate(pool, weights[None], shots)
        tell(next(looks), 2 * len(pool) - 1)
        return Judged(int(found.correct.sum()) / len(shots), float(found.mean_loss()[0]))

    found = choose_greedily(len(pool), judge, strict=strict)
    notes = {"kept": [pool.members[index] for index in found.kept], "accuracy": found.trace}
    return Choice(found.weights, images=(2 * len(pool) - 1) * len(shots), notes=notes)


@seasoners.register("learned", paper="arXiv:2203.05482")
def learned(
    pool: Pool, shots: Shots, context: Context, *, steps: Natural = 60, lr: Positive = 0.05
) -> Choice:
    """Learn convex weights for every tensor, and one temperature, by gradient descent.

    The softmax allows no extrapolation; `gradient` does. The temperature only serves the learning:
    it changes no prediction, and the saved model goes without.

    Args:
        steps: steps of AdamW, each on one batch.
        lr: its step size.
    """
    need_shots("learned", shots)
    soup = LearnedSoup(pool, lr)
    losses = []
    tell = context.told("learning weights")
    pool.watch()
    try:
        for _, (pixels, rows) in zip(
            range(steps), shots.epochs(context.seed, context.batch_size), strict=False
        ):
            outputs = partial(pool.model, pixels)
            losses.append(float(soup.step(outputs, partial(shots.losses, rows=rows))))
            tell(len(losses), steps)
    finally:
        pool.watch(False)
    images = 3 * steps * min(len(shots), context.batch_size)  # a backward pass counts as two
    notes = {"loss": [losses[0], losses[-1]] if losses else []}
    return Choice(soup.weights, images=images, notes=notes)


@seasoners.register("wise_ft", paper="arXiv:2109.01903")
def wise_ft(
    pool: Pool,
    shots: Shots,
    context: Context,
    *,
    alphas: Alphas = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    ties: Ties = "loss",
) -> Choice:
    """Try points on the line from the first model to the second and keep the most accurate.

    Args:
        alphas: shares of the second model; beyond 0 and 1 the line goes on.
        ties: as for `grid`.
    """
    if len(pool) != 2:
        raise BadParameterError(f"wise_ft: expected two members, got {len(pool)}.")
    if not alphas or (len(alphas) > 1 and not len(shots)):
        raise BadParameterError(
            f"wise_ft: expected images to choose an alpha on, or one alpha, got {len(shots)} "
            f"images and alphas={alphas}."
        )
    soups = torch.tensor([line_weights(alpha) for alpha in alphas], dtype=torch.float64)
    if len(alphas) == 1:
        return Choice(soups[0], notes={"alpha": alphas[0]})
    matrix = evaluate(pool, soups, shots, context.told("trying soups"))
    best = matrix.best(ties=ties, seed=context.seed)
    notes = {"alpha": alphas[best]}
    return Choice(soups[best], matrix, images=matrix.correct.size, notes=notes)
