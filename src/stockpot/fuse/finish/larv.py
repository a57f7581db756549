"""LARV: scale the merged change of each layer by how it fits the base (Wang et al., 2602.09413)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from stockpot.errors import BadParameterError
from stockpot.fuse.finish import finishers
from stockpot.fuse.finish.finisher import Finish, SurveyFinisher
from stockpot.fuse.fuser import Slab
from stockpot.fuse.parameters import depths
from stockpot.types import NonNegative

_EPSILON = 1e-8


class Look(NamedTuple):
    """What is known of a matrix."""

    contrast: float
    """The effective rank of the base over that of the change: high for a concentrated change."""
    conflict: float
    """How little base and change commute, from 0 on."""


@finishers.register("larv", paper="arXiv:2602.09413")
def larv(
    *,
    richness: NonNegative = 1.0,
    depth: NonNegative = 0.5,
    gain: NonNegative = 3.0,
    reach: NonNegative = 0.5,
    tiers: list[float] | None = None,
) -> SurveyFinisher:
    """Weaken the merged change in layers where it is diffuse and at odds with the base.

    For every matrix W of the base and its merged change D: e = r(W) / r(D), where r is the
    effective rank exp(-sum p log p) with p_j = sigma_j^2 / sum sigma^2; and c, the mean of
    |W D' - D W'| and |W' D - D' W| over |W| |D|, standardised over all matrices. The score is
    e^richness (l / L)^depth / (1 + softplus(c)) in block l of L, and the change is multiplied by
    1 + reach tanh(gain (score - 1)), or by the tier that its score falls into. Every matrix counts
    as a layer of its own at the depth of its block; what does not change counts for nothing.

    Args:
        richness: the exponent of e.
        depth: the exponent of the depth; 0 leaves depth out.
        gain: how steeply the factor follows the score.
        reach: how far the factor may be from 1.
        tiers: factors instead of a curve, for equal shares of the matrices from the lowest score
            to the highest. The paper prefers two or three; which it takes must be read there.
    """
    if tiers is not None and not tiers:
        raise BadParameterError("tiers: expected one factor or more, got [].", parameter="tiers")

    def look(change: Tensor, slab: Slab) -> Look | None:
        base, change = slab.base.double(), change.double()
        size = torch.linalg.matrix_norm(base) * torch.linalg.matrix_norm(change)
        if not size > 0:
            return None
        contrast = _effective_rank(base) / (_effective_rank(change) + _EPSILON)
        return Look(contrast, float(_commutators(base, change) / (2 * size)))

    def settle(known: Mapping[str, Look | None]) -> Finish:
        looks = {name: one for name, one in known.items() if one is not None}
        scores = _scores(looks, richness, depth)
        if tiers is not None:
            factors = _in_tiers(scores, tiers)
        else:
            factors = {n: 1 + reach * math.tanh(gain * (s - 1)) for n, s in scores.items()}
        return lambda change, slab: change * factors.get(slab.name, 1.0)

    return SurveyFinisher(look, settle)


def _commutators(base: Tensor, change: Tensor) -> Tensor:
    """|W D' - D W'| + |W' D - D' W|, with products of the smaller side only."""
    if base.shape[0] < base.shape[1]:
        base, change = base.T, change.T
    crossed = base.T @ change
    # |W D' - D W'|^2 = 2 <W' W, D' D> - 2 <W' D, D' W>
    outer = ((base.T @ base) * (change.T @ change)).sum() - (crossed * crossed.T).sum()
    inner: Tensor = torch.linalg.matrix_norm(crossed - crossed.T)
    return inner + (2 * outer).clamp(min=0).sqrt()


def _effective_rank(matrix: Tensor) -> float:
    # Eigenvalues of the smaller Gram matrix are squared singular values, and far cheaper.
    wide = matrix.shape[0] <= matrix.shape[1]
    squares = torch.linalg.eigvalsh(matrix @ matrix.T if wide else matrix.T @ matrix).clamp(min=0)
    shares = squares / squares.sum()
    return float(torch.special.entr(shares).sum().exp())


def _scores(looks: Mapping[str, Look], richness: float, depth: float) -> dict[str, float]:
    if not looks:
        return {}
    conflicts = torch.tensor([one.conflict for one in looks.values()], dtype=torch.float64)
    spread = conflicts.std(correction=0)
    # Conflicts that are equal up to rounding say nothing about which layer has more of it.
    usual = (conflicts - conflicts.mean()) / (spread if spread > _EPSILON else 1.0)
    damping = (1 + softplus(usual)).tolist()
    levels = _levels(list(looks))
    return {
        name: one.contrast**richness * levels[name] ** depth / damp
        for (name, one), damp in zip(looks.items(), damping, strict=True)
    }


def _levels(names: list[str]) -> dict[str, float]:
    """The place of each matrix' block among all blocks, from 1 / L to 1."""
    found = depths(names)
    order = sorted(set(found.values()))
    return {name: (order.index(place) + 1) / len(order) for name, place in found.items()}


def _in_tiers(scores: Mapping[str, float], tiers: list[float]) -> dict[str, float]:
    if not scores:
        return {}
    values = torch.tensor(list(scores.values()), dtype=torch.float64)
    cuts = torch.linspace(0, 1, len(tiers) + 1, dtype=torch.float64)[1:-1]
    limits = torch.quantile(values, cuts).tolist() if len(cuts) else []
    return {n: tiers[sum(score > limit for limit in limits)] for n, score in scores.items()}
