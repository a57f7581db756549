"""How good a soup looks without labels of the target, once it is calibrated on a source."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from stockpot.score.scorer import Scorer
from stockpot.score.without_labels.confidence import (
    atc_accuracy,
    doc_accuracy,
    entropy,
    nuclear_norm,
)

Criterion = Literal["entropy", "atc", "agreement", "doc", "nuclear_norm"]
Losses = Callable[[Tensor], Tensor]
"""From logits to the loss of each image."""


class Judgement(NamedTuple):
    """A soup's score, higher is better, and the temperature that fits it to the source."""

    score: float
    temperature: float


def judge(
    criterion: Criterion,
    known: Tensor,
    scorer: Scorer,
    target: Tensor,
    ensemble: Tensor,
    marginal: float = 1.0,
) -> Judgement:
    """Score one soup by its logits on labelled source images and on unlabelled target images.

    Args:
        criterion: how to judge.
        known: logits on the source.
        scorer: what is right for the source.
        target: logits on the target.
        ensemble: the output ensemble's probabilities on the target, for `agreement`.
        marginal: the weight of variety in `entropy`.
    """
    if not bool(torch.isfinite(known).all() and torch.isfinite(target).all()):
        return Judgement(-np.inf, np.nan)
    heat = temperature(known, partial(scorer.losses, rows=slice(None)))
    heats = known.new_full((1,), heat)
    right = scorer.right(known, slice(None))[None, :, 0]
    found = judge_all(criterion, known[None], right, target[None], ensemble, heats, marginal)
    return Judgement(float(found[0]), heat)


def judge_all(
    criterion: Criterion,
    known: Tensor,
    right: Tensor,
    target: Tensor,
    ensemble: Tensor,
    heats: Tensor,
    marginal: float = 1.0,
) -> Tensor:
    """The scores of many soups with known temperatures; logits are soups x images x classes.

    Args:
        criterion: as for `judge`.
        known: logits on the source.
        right: which of its images each soup has right; soups x images.
        target: logits on the target.
        ensemble: as for `judge`.
        heats: the temperature of each soup.
        marginal: as for `judge`.
    """
    heat = heats[:, None, None]
    odds = (target / heat).softmax(dim=2)
    if criterion == "entropy":
        return marginal * entropy(odds.mean(dim=1)) - entropy(odds).mean(dim=1)
    if criterion == "atc":
        sure = (known / heat).softmax(dim=2)
        return atc_accuracy(-entropy(sure), right, -entropy(odds))
    if criterion == "doc":
        sure = (known / heat).softmax(dim=2)
        return doc_accuracy(sure.amax(dim=2), right, odds.amax(dim=2))
    if criterion == "nuclear_norm":
        return nuclear_norm(odds)
    # Counted agreements would tie; the cross-entropy to the ensemble does not.
    return (ensemble * odds.clamp(min=1e-12).log()).sum(dim=2).mean(dim=1)


def calibrated_ensemble(known: list[Tensor], losses: Losses, target: list[Tensor]) -> Tensor:
    """The mean of members' softmax outputs on the target, each at its own temperature."""
    parts = [
        (there / temperature(here, losses)).softmax(dim=1)
        for here, there in zip(known, target, strict=True)
    ]
    return torch.stack(parts).mean(dim=0)


def temperature(logits: Tensor, losses: Losses) -> float:
    """The temperature that minimises the mean loss: nested searches on a log scale.

    The cross-entropy has one minimum in the inverse temperature, so that a search cannot miss it.

    Args:
        logits: images x classes.
        losses: such as a scorer's.
    """
    low, high = -5.0, 5.0  # of the logarithm: temperatures from 0.007 to 148
    logits = logits.double()
    for _ in range(6):
        points = torch.linspace(low, high, 11, dtype=torch.float64).tolist()
        found = [float(losses(logits * _inverse(p)).mean()) for p in points]
        best = min(range(11), key=found.__getitem__)
        low, high = points[max(best - 1, 0)], points[min(best + 1, 10)]
    return float(torch.tensor((low + high) / 2, dtype=torch.float64).exp())


def _inverse(log_temperature: float) -> Tensor:
    return torch.tensor(-log_temperature, dtype=torch.float64).exp()
