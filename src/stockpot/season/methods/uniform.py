"""The uniform soup (Wortsman et al., arXiv:2203.05482)."""

from __future__ import annotations

import torch

from stockpot.season import seasoners
from stockpot.season.choice import Choice, Context
from stockpot.season.pool import Pool
from stockpot.season.shots import Shots


@seasoners.register("uniform", paper="arXiv:2203.05482")
def uniform(pool: Pool, shots: Shots, context: Context) -> Choice:
    """Equal weights; looks at no image."""
    return Choice(torch.full((len(pool),), 1 / len(pool), dtype=torch.float64))
