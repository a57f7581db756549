"""The evaluator: many soups on the same images, with nothing moved but the weights."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from stockpot.models.classifier import Classifier
from stockpot.pool.pool import Pool
from stockpot.season.matrix import Matrix
from stockpot.season.shots import Shots


def logits_of(model: Classifier, shots: Shots) -> Tensor:
    """All logits of one model for the answers that are possible here, without gradients."""
    with torch.inference_mode():
        outputs = torch.cat([model(batch).float() for batch in shots.batches])
        return shots.scorer.logits(outputs)


def evaluate(pool: Pool, soups: Tensor, shots: Shots) -> Matrix:
    """Which images each soup gets right, and its loss on each.

    Args:
        pool: the members.
        soups: one row of weights per soup.
        shots: the images.
    """
    correct = torch.empty(len(soups), len(shots), dtype=torch.bool, device=pool.device)
    loss = torch.empty(len(soups), len(shots), device=pool.device)
    with torch.inference_mode():
        for row, weights in enumerate(soups):
            model = pool.load(weights)
            for batch, rows in zip(shots.batches, shots.slices, strict=True):
                logits = shots.scorer.logits(model(batch).float())
                correct[row, rows] = shots.scorer.right(logits, rows)[:, 0]
                loss[row, rows] = shots.scorer.losses(logits, rows)
    return Matrix(soups.double().numpy(), correct.cpu().numpy(), loss.cpu().numpy())


def member_logits(pool: Pool, shots: Shots) -> Iterator[Tensor]:
    """The logits of each member in turn."""
    for weights in torch.eye(len(pool), dtype=torch.float64):
        yield logits_of(pool.load(weights), shots)


def members_and_ensemble(pool: Pool, shots: Shots) -> tuple[np.ndarray, np.ndarray]:
    """Who is right where: each member, and the mean of their softmax outputs.

    The output ensemble is the usual baseline; it costs one forward pass per member.
    """
    right = []
    total = torch.zeros(1, 1, device=pool.device)
    for logits in member_logits(pool, shots):
        right.append(shots.scorer.right(logits, slice(None))[:, 0])
        total = total + logits.softmax(dim=1)
    ensemble = shots.scorer.right(total, slice(None))[:, 0]
    return torch.stack(right).cpu().numpy(), ensemble.cpu().numpy()
