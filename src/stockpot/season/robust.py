"""Soups under attack: who withstands what, soup by soup and image by image."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stockpot.attack.run import AttackResult
from stockpot.attack.scored import attack_scored
from stockpot.attack.threat import Threats
from stockpot.models.classifier import Classifier
from stockpot.pool.pool import Pool
from stockpot.season.matrix import Matrix
from stockpot.season.shots import Shots

CLEAN, UNION = "clean", "union"
Done = Callable[[int, int], None]


def evaluate_under(
    pool: Pool,
    soups: Tensor,
    shots: Shots,
    threats: Threats,
    *,
    by_norm: Mapping[str, Mapping[str, Any]] | None = None,
    done: Done | None = None,
    **params: Any,
) -> dict[str, Matrix]:
    """For clean images, each threat and their union: which images each soup gets right.

    Args:
        pool: the members.
        soups: one row of weights per soup.
        shots: the images.
        threats: what each soup is attacked with, in turn.
        by_norm: parameters of the attack for one norm.
        done: called with the number of soups that are done, and all.
        params: parameters of every attack, as for `stockpot.attack`.
    """
    conditions = [CLEAN, *map(str, threats.members)]
    masks = {name: np.zeros((len(soups), len(shots)), dtype=bool) for name in conditions}
    losses = {name: np.zeros((len(soups), len(shots)), dtype=np.float32) for name in conditions}
    for row, weights in enumerate(soups):
        model = pool.load(weights)
        for member in threats.members:
            own = {**params, **(by_norm or {}).get(member.norm, {})}
            found = withstood(model, shots, norm=member.norm, eps=member.eps, **own)
            masks[CLEAN][row] = np.concatenate([part.correct.cpu().numpy() for part in found])
            masks[str(member)][row] = np.concatenate([part.robust.cpu().numpy() for part in found])
            losses[str(member)][row] = np.concatenate([part.loss.cpu().numpy() for part in found])
        if done:
            done(row + 1, len(soups))
    weights_of = soups.double().numpy()
    found_of = {n: Matrix(weights_of, masks[n], np.nan_to_num(losses[n])) for n in conditions}
    return found_of | {UNION: union(list(found_of.values())[1:])}


def withstood(model: Classifier, shots: Shots, **params: Any) -> list[AttackResult]:
    """One attack on all images; an image's draws depend on its place among them alone."""
    return [
        attack_scored(
            model,
            batch,
            shots.scorer,
            torch.arange(rows.start, rows.stop, device=batch.device),
            seed=list(range(rows.start, rows.stop)),
            check=False,
            **params,
        )
        for batch, rows in zip(shots.batches, shots.slices, strict=True)
    ]


def union(matrices: Sequence[Matrix]) -> Matrix:
    """Right only where every matrix is; the loss is the worst one."""
    correct: NDArray[np.bool_] = np.logical_and.reduce([matrix.correct for matrix in matrices])
    loss: NDArray[np.float32] = np.max([matrix.loss for matrix in matrices], axis=0)
    return Matrix(matrices[0].weights, correct, loss)


def line(low: float, high: float, step: float, members: int, first: int, second: int) -> Tensor:
    """Soups on the line through two of the members: the second's weight runs from low to high."""
    count = round((high - low) / step)
    soups = torch.zeros(count + 1, members, dtype=torch.float64)
    for row in range(count + 1):
        # Rounded, so that the ends are exactly the members.
        share = round(low + row * step, 6)
        soups[row, first], soups[row, second] = 1 - share, share
    return soups
