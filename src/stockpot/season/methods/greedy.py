"""The greedy soup (Wortsman et al., arXiv:2203.05482)."""

from __future__ import annotations

import numpy as np
import torch

from stockpot.season import seasoners
from stockpot.season.choice import Choice, Context, need_shots
from stockpot.season.evaluate import evaluate
from stockpot.season.pool import Pool
from stockpot.season.shots import Shots


@seasoners.register("greedy", paper="arXiv:2203.05482")
def greedy(pool: Pool, shots: Shots, context: Context) -> Choice:
    """Best member first; add the others in turn if the mean does not get worse."""
    need_shots("greedy", shots)
    alone = evaluate(pool, torch.eye(len(pool), dtype=torch.float64), shots).correct.sum(axis=1)
    order = np.argsort(-alone, kind="stable").tolist()
    kept, best = [order[0]], int(alone[order[0]])
    trace = [best / len(shots)]
    for member in order[1:]:
        trial = _mean(len(pool), [*kept, member])
        right = int(evaluate(pool, trial[None], shots).correct.sum())
        if right >= best:
            kept.append(member)
            best = right
            trace.append(best / len(shots))
    notes = {"kept": [pool.members[index] for index in kept], "accuracy": trace}
    return Choice(_mean(len(pool), kept), images=(2 * len(pool) - 1) * len(shots), notes=notes)


def _mean(members: int, kept: list[int]) -> torch.Tensor:
    weights = torch.zeros(members, dtype=torch.float64)
    weights[kept] = 1 / len(kept)
    return weights
