"""Choose a soup for images without labels."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from stockpot.errors import BadParameterError
from stockpot.season import seasoners
from stockpot.season.calibrate import atc_accuracy, entropy, temperature
from stockpot.season.choice import Choice, Context, need_shots
from stockpot.season.evaluate import logits_of
from stockpot.season.grids import affine_grid
from stockpot.season.pool import Pool
from stockpot.season.shots import Shots

Criterion = Literal["entropy", "atc", "agreement"]


@seasoners.register("label_free")
def label_free(
    pool: Pool,
    shots: Shots,
    context: Context,
    *,
    criterion: Criterion = "agreement",
    marginal: float = 1.0,
    low: float = -0.4,
    high: float = 1.4,
    step: float = 0.2,
) -> Choice:
    """Rank the grid's soups on unlabelled images, each soup calibrated on labelled source images.

    Extrapolation inflates logits, and a raw entropy would take that for certainty; therefore each
    soup first gets the temperature that fits the source.

    Args:
        criterion: `entropy`: sure about each image, and varied over all; `atc`: the accuracy that
            the share of confident images foretells; `agreement`: with the output ensemble of
            all members.
        marginal: the weight of variety (the entropy of the mean prediction) in `entropy`.
        low: the smallest weight; 0 makes the soups convex.
        high: the largest weight.
        step: the distance of grid points.
    """
    need_shots("label_free", shots)
    source = context.source
    if source is None or not len(source):
        raise BadParameterError(
            "label_free: needs labelled source images to calibrate on.",
            hint="Give source=DATASET (images of the kind that the members were trained on).",
        )
    soups = affine_grid(len(pool), low=low, high=high, step=step)
    ensemble = _ensemble(pool, source, shots)
    scores, temperatures = [], []
    for weights in soups:
        model = pool.load(weights, context.unlabelled)
        known, target = logits_of(model, source), logits_of(model, shots)
        if not bool(torch.isfinite(known).all() and torch.isfinite(target).all()):
            scores.append(-np.inf)
            temperatures.append(np.nan)
            continue
        heat = temperature(known, source.labels)
        sure, odds = (known / heat).softmax(dim=1), (target / heat).softmax(dim=1)
        if criterion == "entropy":
            score = float(marginal * entropy(odds.mean(dim=0)) - entropy(odds).mean())
        elif criterion == "atc":
            right = known.argmax(dim=1) == source.labels
            score = atc_accuracy(-entropy(sure), right, -entropy(odds))
        else:
            # Counted agreements would tie; the cross-entropy to the ensemble does not.
            score = float((ensemble * odds.clamp(min=1e-12).log()).sum(dim=1).mean())
        scores.append(score)
        temperatures.append(heat)
    best = int(np.argmax(scores))
    images = (len(soups) + len(pool)) * (len(shots) + len(source))
    notes = {"criterion": criterion, "score": scores[best], "temperature": temperatures[best]}
    return Choice(soups[best], images=images, notes=notes)


def _ensemble(pool: Pool, source: Shots, shots: Shots) -> Tensor:
    """The mean of the members' calibrated softmax outputs on the target."""
    total = torch.zeros(len(shots), len(pool.model.classes), device=pool.device)
    for weights in torch.eye(len(pool), dtype=torch.float64):
        model = pool.load(weights)
        known, target = logits_of(model, source), logits_of(model, shots)
        total += (target / temperature(known, source.labels)).softmax(dim=1)
    return total / len(pool)
