"""DELLA: drop small changes more often than large ones (Deep et al., arXiv:2406.11617)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Literal

import torch
from torch import Tensor

from stockpot.errors import BadParameterError
from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, SurveyFuser
from stockpot.fuse.parameters import one_each
from stockpot.fuse.sparse.chance import uniform
from stockpot.fuse.sparse.combine import Reduce, add_up, disjoint, weighed
from stockpot.types import Seed


@fusers.register(
    "della",
    paper="arXiv:2406.11617",
    needs_base=True,
    edition=2,  # other draws for a seed
    presets={
        "mergekit": {
            "density": 1.0, "epsilon": 0.15, "scale": 1.0, "elect": True, "reduce": "mean",
            "rescale": "l1",
        },
        "mergekit_linear": {
            "density": 1.0, "epsilon": 0.15, "scale": 1.0, "elect": False, "rescale": "l1",
        },
    },
)  # fmt: skip
def della(
    *,
    density: float = 0.5,
    epsilon: float = 0.15,
    scale: float = 1.0,
    elect: bool = True,
    reduce: Reduce = "mean",
    rescale: Literal["inverse", "l1", "none"] = "inverse",
    weights: list[float] | None = None,
    densities: list[float] | None = None,
    epsilons: list[float] | None = None,
    seed: Seed = 0,
) -> SurveyFuser:
    """Drop changes at random by their rank in a row, elect a sign, merge what agrees.

    In each row of a tensor the k-th largest of n changes survives with a probability that falls
    evenly from density + epsilon to density - epsilon. Rescaling and election are the paper's by
    default; its numbers differ from experiment to experiment, and epsilon is mergekit's.

    Args:
        density: the mean probability of surviving.
        epsilon: half the range of the probabilities.
        scale: multiplies the merged change before it is added to the base.
        elect: merge only changes with the elected sign; otherwise add all up.
        reduce: how agreeing changes combine.
        rescale: divide each survivor by its probability (the paper), match the sum of magnitudes
            of the tensor (mergekit), or leave the survivors as they are.
        weights: one number per member; all 1 by default.
        densities: one density per member, instead of one for all.
        epsilons: one epsilon per member, instead of one for all.
        seed: the survivors depend on it, the member's place and the tensor's name.
    """
    share, range_of = (
        one_each("density", densities, density),
        one_each("epsilon", epsilons, epsilon),
    )
    for member in range(max(len(densities or ()), len(epsilons or ()), 1)):
        _check(share(member), range_of(member))

    def dropped(slab: Slab, member: int) -> tuple[Tensor, Tensor]:
        """A change in rows, and what is left of it; a stretch has whole rows."""
        change = _in_rows(slab.delta(member), slab.info.shape)
        if share(member) >= 1:
            return change, change
        chance = uniform(slab, change.numel(), seed=seed, member=member, device=change.device)
        odds = survival(change, share(member), range_of(member))
        part = change * (chance.view_as(change) < odds)
        return change, part / odds if rescale == "inverse" else part

    def factor(slab: Slab, member: int) -> float:
        """What brings the sum of magnitudes of a whole tensor back to what it was."""
        before = after = 0.0
        for part in slab.stretches(rows=True):
            change, kept = dropped(part, member)
            before += float(change.abs().sum())
            after += float(kept.abs().sum())
        return 1.0 if before < 1e-7 or after < 1e-7 else before / after

    def survey(slab: Slab) -> Callable[[Slab], Tensor]:
        members = range(slab.count)
        matched = [factor(slab, member) if rescale == "l1" else 1.0 for member in members]

        def kept(part: Slab) -> Iterator[Tensor]:
            for member in members:
                left = dropped(part, member)[1]
                yield left if matched[member] == 1.0 else left * matched[member]

        def merge(part: Slab) -> Tensor:
            if elect:
                total = disjoint(kept(part), weights, reduce, majority=1.0)
            else:
                total = add_up(weighed(kept(part), weights))
            return total.mul_(scale).view(-1).add_(part.base)

        return merge

    return SurveyFuser(survey, looks=1 if rescale == "l1" else 0, rows=True)


def _in_rows(values: Tensor, shape: tuple[int, ...]) -> Tensor:
    return values.reshape(-1, max(math.prod(shape[1:]), 1)) if len(shape) > 1 else values[None]


def _check(density: float, epsilon: float) -> None:
    if density < 1 and not (epsilon >= 0 and density - epsilon > 0 and density + epsilon < 1):
        raise BadParameterError(
            f"epsilon: density - epsilon and density + epsilon must lie between 0 and 1, "
            f"got {density} and {epsilon}."
        )


def survival(change: Tensor, density: float, epsilon: float) -> Tensor:
    """The probability that each change survives, by the rank of its magnitude in its row."""
    rows = change
    columns = rows.shape[1]
    if columns < 2:
        return torch.full_like(change, density)
    order = rows.abs().argsort(dim=1)
    steps = torch.arange(columns, dtype=change.dtype, device=change.device) / (columns - 1)
    odds = torch.empty_like(rows)
    odds.scatter_(1, order, ((density - epsilon) + steps * (2 * epsilon)).expand_as(rows))
    return odds.view_as(change)
