"""Choose among soups with the labels of few images, asked for where they tell most."""

from __future__ import annotations

import numpy as np
import torch

from stockpot.pool.pool import Pool
from stockpot.score.predictions import finite
from stockpot.score.without_labels.coda import Coda
from stockpot.season import seasoners
from stockpot.season.choice import Choice, Context, need_shots
from stockpot.season.evaluate import logits_of
from stockpot.season.grids import affine_grid
from stockpot.season.ranking import ranking
from stockpot.season.shots import Shots
from stockpot.types import Natural, Positive


@seasoners.register("coda", paper="arXiv:2507.23771")
def coda(
    pool: Pool,
    shots: Shots,
    context: Context,
    *,
    labels: Natural = 20,
    rate: Positive = 1.0,
    low: float = 0.0,
    high: float = 1.0,
    step: Positive = 0.5,
) -> Choice:
    """Ask for the labels of those shots that tell most about which soup is best.

    Args:
        labels: how many; 0 goes by the consensus of all soups alone.
        rate: how much a label counts beside the consensus of all soups; 0.01 for the authors.
        low: the smallest weight of the grid's soups.
        high: the largest weight.
        step: the distance of grid points; 1 leaves the members alone to choose among.
    """
    need_shots("coda", shots)
    soups = affine_grid(len(pool), low=low, high=high, step=step)
    outputs = []
    tell = context.told("trying soups")
    for weights in soups:
        outputs.append(logits_of(pool.load(weights), shots))
        tell(len(outputs), len(soups))
    answered = torch.stack([finite(each) for each in outputs]).cpu().numpy()
    odds = torch.stack(outputs).double().softmax(dim=2).cpu().numpy()
    odds = np.nan_to_num(odds, nan=1 / odds.shape[2])
    known = Coda(odds, rate=rate, said=np.where(answered, odds.argmax(axis=2), -1))
    labels_of = shots.scorer.targets.cpu().numpy()
    right = torch.stack([shots.scorer.right(each, slice(None))[:, 0] for each in outputs])
    hits = right.cpu().numpy()
    lot = np.random.default_rng(context.seed).permutation(len(shots))
    asked = []
    for _ in range(min(labels, len(shots))):
        images = known.candidates()
        gains = known.gains(images).round(12)
        image = int(images[np.lexsort((lot[images], -gains))[0]])
        known.add(image, int(labels_of[image]), hits[:, image])
        asked.append(image)
    shares = known.best()
    best = int(ranking(soups.numpy(), shares.round(12), seed=context.seed)[0])
    notes = {"labels": len(asked), "asked": asked, "probability": float(shares[best])}
    return Choice(soups[best], images=len(soups) * len(shots), notes=notes)
