"""DOP: near both the merged model and the new one where each changed (Yang et al., NeurIPS 2025).

E. Yang and others: Continual Model Merging without Data: Dual Projections for Balancing Stability
and Plasticity, openreview.net/forum?id=zD5cUX67b9.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.continual.names import EMBEDDINGS, is_matrix
from stockpot.fuse.fuser import Slab, TensorFuser
from stockpot.fuse.room import of_matrices
from stockpot.fuse.spectral.adam import descend
from stockpot.fuse.spectral.decompose import (
    RANK_TOLERANCE,
    check_tolerance,
    kept,
    leading_triples,
    rounding_floor,
)
from stockpot.types import Fraction01, Natural, NonNegative, Positive

Side = Literal["uv", "u", "v"]
Rule = Literal["whole", "fusionbench"]


@fusers.register("dop", paper="openreview:zD5cUX67b9", needs_base=True, heavy=True)
def dop(
    *,
    steps: Natural = 200,
    lr: Positive = 1e-4,
    alpha: Fraction01 = 0.8,
    balance: Literal["pareto", "fixed"] = "pareto",
    momentum: Fraction01 = 0.999,
    energy: Fraction01 = 0.99999,
    space: Side = "uv",
    rule: Rule = "whole",
    skip: str = EMBEDDINGS,
    rank_tolerance: NonNegative = RANK_TOLERANCE,
) -> TensorFuser:
    """Merge members one after the other, each time balancing the merged model and the new one.

    From their mean, Adam brings every matrix near both: distances are measured in the singular
    vectors of each one's own change, weighed by its singular values. Other tensors become the mean
    of the merged one and the new one, so that a member counts half of the next. The order of the
    members matters; each is read once, one at a time.

    Args:
        steps: steps of Adam for each member after the first.
        lr: their size.
        alpha: the weight of the merged model's distance, at the start or always; the new one has
            the rest.
        balance: weights that follow the shortest mix of both gradients (pareto), or `alpha`
            throughout (fixed).
        momentum: how much of the last step's weights is kept; 0 takes those of each step.
        energy: the share of the singular values whose vectors count.
        rule: the vectors that reach this share together (whole), or all of them but the last, as
            FusionBench counts: a change of rank one then has none, one of rank two has one.
        space: left and right singular vectors (uv), or the left (u) or the right (v) alone.
        skip: globs of the names of matrices that are averaged like other tensors, by commas.
        rank_tolerance: singular values up to this share of a change's Frobenius norm count as
            rounding and are left out; 0 keeps all, as FusionBench does.
    """
    check_tolerance(rank_tolerance)

    def merge(slab: Slab) -> Tensor:
        matrix = is_matrix(slab.name, slab.info.shape, skip)
        merged = slab.member(0)
        for index in range(1, slab.count):
            member = slab.member(index)
            start = (merged + member) / 2
            if matrix:
                both = [_near(slab.base, end, energy, space, rule, rank_tolerance)
                        for end in (merged, member)]  # fmt: skip
                slope = _Slope(both, alpha, momentum if balance == "pareto" else 1.0)
                # In fp64: Adam makes whole steps of what rounding leaves of a slope that is none.
                start = descend(start.double(), slope, lr=lr, steps=steps).to(slab.base.dtype)
            merged = start
        return merged

    merged = partial(is_matrix, skip=skip)
    return TensorFuser(merge, room=of_matrices(58, member=1.2, merged=merged))


class _Near(NamedTuple):
    """Where a matrix should be, and how much its distance counts in each direction."""

    end: Tensor
    left: Tensor | None
    """Rows u_i s_i of the left vectors; none where they do not count."""
    right: Tensor | None

    def slope(self, point: Tensor) -> tuple[Tensor, Tensor]:
        """Half the gradient of the squared distance, and that distance."""
        away = point - self.end
        total = torch.zeros_like(away)
        if self.left is not None:
            total += self.left.T @ (self.left @ away)
        if self.right is not None:
            total += (away @ self.right.T) @ self.right
        return total, (total * away).sum()


def _near(
    base: Tensor, end: Tensor, energy: float, space: Side, rule: Rule, tolerance: float
) -> _Near:
    change = end.double() - base.double()
    floor = rounding_floor(change, tolerance)
    left, values, right = leading_triples(change, floor)
    below = int((values.cumsum(0) < energy * values.sum()).sum())
    size = kept(values, floor, below + (rule == "whole"))
    sizes = values[:size, None]
    return _Near(
        end.double(),
        sizes * left[:, :size].T if "u" in space else None,
        sizes * right[:size] if "v" in space else None,
    )


class _Slope:
    """The gradient of both distances, weighed; the weights follow it."""

    def __init__(self, both: list[_Near], alpha: float, momentum: float) -> None:
        self._both = both
        self._first = alpha
        self._momentum = momentum

    def __call__(self, point: Tensor) -> Tensor:
        (old, far), (new, off) = (near.slope(point) for near in self._both)
        if self._momentum < 1:
            share = _shortest(2 * old / _or_one(far), 2 * new / _or_one(off))
            self._first = self._momentum * self._first + (1 - self._momentum) * share
        return 2 * (self._first * old + (1 - self._first) * new)


def _or_one(loss: Tensor) -> Tensor:
    """What a gradient is divided by: where the loss is zero, so is the gradient."""
    return torch.where(loss > 0, loss, torch.ones_like(loss))


def _shortest(one: Tensor, other: Tensor) -> float:
    """The weight of the first in the shortest mix of two vectors, as MGDA takes it."""
    pairs = ((one, one), (one, other), (other, other))
    first, both, second = (float((a * b).sum()) for a, b in pairs)
    if both >= first:
        return 0.999
    if both >= second:
        return 0.001
    return (second - both) / (first + second - 2 * both)
