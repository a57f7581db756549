"""How good a soup looks without labels: three criteria on calibrated predictions."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from stockpot.season.calibrate import atc_accuracy, entropy, temperature

Criterion = Literal["entropy", "atc", "agreement"]


class Judgement(NamedTuple):
    """A soup's score, higher is better, and the temperature that fits it to the source."""

    score: float
    temperature: float


def judge(
    criterion: Criterion,
    known: Tensor,
    labels: Tensor,
    target: Tensor,
    ensemble: Tensor,
    marginal: float = 1.0,
) -> Judgement:
    """Score one soup by its logits on labelled source images and on unlabelled target images.

    Args:
        criterion: `entropy`, `atc` or `agreement`.
        known: logits on the source.
        labels: of the source.
        target: logits on the target.
        ensemble: the output ensemble's probabilities on the target, for `agreement`.
        marginal: the weight of variety in `entropy`.
    """
    if not bool(torch.isfinite(known).all() and torch.isfinite(target).all()):
        return Judgement(-np.inf, np.nan)
    heat = temperature(known, labels)
    heats = known.new_full((1,), heat)
    found = judge_all(criterion, known[None], labels, target[None], ensemble, heats, marginal)
    return Judgement(float(found[0]), heat)


def judge_all(
    criterion: Criterion,
    known: Tensor,
    labels: Tensor,
    target: Tensor,
    ensemble: Tensor,
    heats: Tensor,
    marginal: float = 1.0,
) -> Tensor:
    """The scores of many soups with known temperatures; logits are soups x images x classes."""
    heat = heats[:, None, None]
    odds = (target / heat).softmax(dim=2)
    if criterion == "entropy":
        return marginal * entropy(odds.mean(dim=1)) - entropy(odds).mean(dim=1)
    if criterion == "atc":
        sure = (known / heat).softmax(dim=2)
        return atc_accuracy(-entropy(sure), known.argmax(dim=2) == labels, -entropy(odds))
    # Counted agreements would tie; the cross-entropy to the ensemble does not.
    return (ensemble * odds.clamp(min=1e-12).log()).sum(dim=2).mean(dim=1)


def calibrated_ensemble(known: list[Tensor], labels: Tensor, target: list[Tensor]) -> Tensor:
    """The mean of members' softmax outputs on the target, each at its own temperature."""
    parts = [
        (there / temperature(here, labels)).softmax(dim=1)
        for here, there in zip(known, target, strict=True)
    ]
    return torch.stack(parts).mean(dim=0)
