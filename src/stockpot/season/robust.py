"""Soups under attack: who withstands what, soup by soup and image by image."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stockpot.attack.run import AttackResult
from stockpot.attack.scored import attack_scored
from stockpot.attack.threat import Threats
from stockpot.errors import BadParameterError
from stockpot.pool.pool import Pool
from stockpot.score.scorer import Model, Scorer
from stockpot.season.evaluate import Answers, Done
from stockpot.season.matrix import Matrix
from stockpot.season.shots import Shots

MOST_POINTS = 10_000
"""Of a line between two members: more differ by less than a measurement can tell."""

CLEAN, UNION = "clean", "union"


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

    The loss is the cross-entropy of the image as the attack left it: of the clean one where the
    soup was wrong about that already.

    Args:
        pool: the members.
        soups: one row of weights per soup.
        shots: the images.
        threats: what each soup is attacked with, in turn.
        by_norm: parameters of the attack for one norm.
        done: called with the number of soups that are done, and all.
        params: parameters of every attack, as for `stockpot.attack`.
    """
    names = [CLEAN, *map(str, threats.members)]
    masks = {name: np.zeros((len(soups), len(shots)), dtype=bool) for name in names}
    losses = {name: np.zeros((len(soups), len(shots)), dtype=np.float32) for name in names}
    for block in shots.blocks():
        for row, weights in enumerate(soups):
            model = pool.load(weights)
            for batch, rows in block:
                found = under_attack(
                    model, batch, rows, shots.scorer, threats, by_norm=by_norm, **params
                )
                for name, (right, loss) in found.items():
                    masks[name][row, rows], losses[name][row, rows] = right, loss
            if done:
                done(row + 1, len(soups))
    weights_of = soups.double().numpy()
    found_of = {name: Matrix(weights_of, masks[name], losses[name], shots.groups) for name in names}
    return found_of | {UNION: union(list(found_of.values())[1:])}


Found = tuple[NDArray[np.bool_], NDArray[np.float32]]


def under_attack(
    model: Model,
    batch: Tensor,
    rows: slice,
    scorer: Scorer,
    threats: Threats,
    *,
    by_norm: Mapping[str, Mapping[str, Any]] | None = None,
    **params: Any,
) -> dict[str, Found]:
    """Who is right, and the losses, on one batch: clean, and under each threat.

    An image's draws depend on its row alone.
    """
    places = torch.arange(rows.start, rows.stop, device=batch.device)
    pixels = batch if batch.is_floating_point() else batch.float() / 255
    found = {}
    for member in threats.members:
        own = {**params, **(by_norm or {}).get(member.norm, {})}
        attacked: AttackResult = attack_scored(
            model,
            pixels,
            scorer,
            places,
            seed=list(range(rows.start, rows.stop)),
            check=False,
            norm=member.norm,
            eps=member.eps,
            **own,
        )
        if CLEAN not in found:
            found[CLEAN] = _found(model, pixels, attacked.correct, scorer, places)
        found[str(member)] = _found(model, attacked.images, attacked.robust, scorer, places)
    return found


def _found(model: Model, pixels: Tensor, right: Tensor, scorer: Scorer, rows: Tensor) -> Found:
    # The attack's own loss has no value for images that were wrong before it began, and its scale
    # is that of whatever the attack raises.
    with torch.inference_mode():
        losses = scorer.losses(scorer.logits(model(pixels).float()), rows)
    losses = torch.where(torch.isnan(losses), torch.inf, losses)
    return right.cpu().numpy(), losses.cpu().numpy()


def union(matrices: Sequence[Matrix]) -> Matrix:
    """Right only where every matrix is; the loss is the worst one."""
    correct: NDArray[np.bool_] = np.logical_and.reduce([matrix.correct for matrix in matrices])
    loss: NDArray[np.float32] = np.max([matrix.loss for matrix in matrices], axis=0)
    return Matrix(matrices[0].weights, correct, loss, matrices[0].groups)


@dataclass(frozen=True)
class Attacked:
    """What a choice was made under, so that it is scored and drawn under the same."""

    threats: Threats
    steps: int

    def __str__(self) -> str:
        return f"{self.threats} (APGD, {self.steps} steps)"

    def matrix(self, pool: Pool, soups: Tensor, shots: Shots, done: Done | None = None) -> Matrix:
        """Soups x images under all threats together."""
        return evaluate_under(pool, soups, shots, self.threats, done=done, steps=self.steps)[UNION]

    def answers(
        self, pool: Pool, weights: Tensor, shots: Shots, done: Done | None = None
    ) -> Answers:
        """Who withstands all threats: the soup, each member, and their output ensemble."""
        members = torch.eye(len(pool), dtype=torch.float64)
        alone = self.matrix(pool, members, shots, done).correct
        soup = self.matrix(pool, weights[None], shots).correct[0]
        networks = []
        for one in members:
            pool.load(one)
            networks.append(pool.copy().eval().requires_grad_(False))

        def together(pixels: Tensor) -> Tensor:
            parts = [shots.scorer.logits(each(pixels).float()) for each in networks]
            # The log of the mean of their softmax outputs; a log of what vanished is no answer.
            shares = torch.stack([part.log_softmax(dim=1) for part in parts])
            return shares.logsumexp(dim=0) - math.log(len(parts))

        columns = shots.scorer.of_columns
        ensemble = np.zeros(len(shots), dtype=bool)
        for batch, rows in zip(shots.batches, shots.slices, strict=True):
            found = under_attack(together, batch, rows, columns, self.threats, steps=self.steps)
            ensemble[rows] = np.logical_and.reduce(
                [found[str(each)][0] for each in self.threats.members]
            )
        return Answers(soup, alone, ensemble)


def line(low: float, high: float, step: float, members: int, first: int, second: int) -> Tensor:
    """Soups on the line through two of the members: the second's weight runs from low to high."""
    if not 0 <= (high - low) / step <= MOST_POINTS:
        raise BadParameterError(
            f"expected at most {MOST_POINTS} weights from low to high, got low={low:g}, "
            f"high={high:g}, step={step:g}."
        )
    count = round((high - low) / step)
    soups = torch.zeros(count + 1, members, dtype=torch.float64)
    for row in range(count + 1):
        # Rounded, so that the ends are exactly the members.
        share = round(low + row * step, 6)
        soups[row, first], soups[row, second] = 1 - share, share
    return soups
