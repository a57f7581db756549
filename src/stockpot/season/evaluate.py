"""The evaluator: many soups on the same images, with nothing moved but the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stockpot.models.classifier import Classifier
from stockpot.pool.pool import Pool
from stockpot.season.matrix import Matrix
from stockpot.season.shots import Shots

Flags = NDArray[np.bool_]
Done = Callable[[int, int], None]
"""Called with how much is done (images looked at, soups, steps), and of how much."""


def logits_of(model: Classifier, shots: Shots) -> Tensor:
    """All logits of one model for the answers that are possible here, without gradients."""
    with torch.inference_mode():
        outputs = torch.cat([*map(shots.asked(model), shots.batches)])
        return shots.scorer.logits(outputs)


def evaluate(pool: Pool, soups: Tensor, shots: Shots, done: Done | None = None) -> Matrix:
    """Which images each soup gets right, and its loss on each.

    Args:
        pool: the members.
        soups: one row of weights per soup (or members x tensors for each).
        shots: the images; where they are too many to hold, all soups meet one block of them after
            the other, so that each is decoded once.
        done: called with the images that soups have looked at.
    """
    looks = 0
    correct = torch.empty(len(soups), len(shots), dtype=torch.bool, device=pool.device)
    loss = torch.empty(len(soups), len(shots), device=pool.device)
    with torch.inference_mode():
        for block in shots.blocks():
            for row, weights in enumerate(soups):
                run = shots.asked(pool.load(weights))
                for batch, rows in block:
                    logits = shots.scorer.logits(run(batch))
                    correct[row, rows] = shots.scorer.right(logits, rows)[:, 0]
                    loss[row, rows] = shots.scorer.losses(logits, rows)
                    looks += rows.stop - rows.start
                    if done:
                        done(looks, loss.numel())
    found = correct.cpu().numpy(), loss.cpu().numpy()
    return Matrix(soups.double().numpy(), *found, shots.groups)


def member_logits(pool: Pool, shots: Shots) -> Iterator[Tensor]:
    """The logits of each member in turn."""
    for weights in torch.eye(len(pool), dtype=torch.float64):
        yield logits_of(pool.load(weights), shots)


class Answers(NamedTuple):
    """Who is right where."""

    soup: Flags
    members: Flags
    """Members x images."""
    ensemble: Flags
    """The mean of the members' softmax outputs: the usual baseline, at as many forward passes."""


def answers(pool: Pool, weights: Tensor, shots: Shots, done: Done | None = None) -> Answers:
    """Who is right where: a soup, each member, and the mean of the members' softmax outputs.

    All are formed by the pool, so that BatchNorm follows one rule for all. `done` is called with
    the images that models have looked at.
    """
    looks = 0
    models = [*torch.eye(len(pool), dtype=torch.float64), weights]
    right = torch.empty(len(models), len(shots), dtype=torch.bool, device=pool.device)
    ensemble = torch.empty(len(shots), dtype=torch.bool, device=pool.device)
    with torch.inference_mode():
        for block in shots.blocks():
            totals = [torch.zeros(1, 1, device=pool.device) for _ in block]
            for row, each in enumerate(models):
                run = shots.asked(pool.load(each))
                for number, (batch, rows) in enumerate(block):
                    logits = shots.scorer.logits(run(batch))
                    right[row, rows] = shots.scorer.right(logits, rows)[:, 0]
                    if row < len(pool):
                        totals[number] = totals[number] + logits.softmax(dim=1)
                    looks += rows.stop - rows.start
                    if done:
                        done(looks, right.numel())
            for total, (_, rows) in zip(totals, block, strict=True):
                ensemble[rows] = shots.scorer.right(total, rows)[:, 0]
    found = right.cpu().numpy()
    return Answers(found[-1], found[:-1], ensemble.cpu().numpy())
