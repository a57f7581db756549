"""The line between two models (Wortsman et al., arXiv:2109.01903)."""

from __future__ import annotations

import torch

from stockpot.errors import BadParameterError
from stockpot.season import seasoners
from stockpot.season.choice import Choice, Context
from stockpot.season.evaluate import evaluate
from stockpot.season.matrix import Ties
from stockpot.season.pool import Pool
from stockpot.season.shots import Shots


@seasoners.register("wise_ft", paper="arXiv:2109.01903")
def wise_ft(
    pool: Pool,
    shots: Shots,
    context: Context,
    *,
    alphas: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
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
    second = torch.tensor(alphas, dtype=torch.float64)
    soups = torch.stack([1 - second, second], dim=1)
    if len(alphas) == 1:
        return Choice(soups[0], notes={"alpha": alphas[0]})
    matrix = evaluate(pool, soups, shots, context.unlabelled)
    best = matrix.best(ties=ties, seed=context.seed)
    return Choice(soups[best], matrix, matrix.correct.size, {"alpha": alphas[best]})
