"""RAM: what one member alone changed is kept whole, what several did is averaged (2601.13572)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, StagedFuser, Stages, SurveyFuser, TensorFuser
from stockpot.fuse.sparse.combine import add_up
from stockpot.types import NonNegative


@fusers.register(
    "ram",
    paper="arXiv:2601.13572",
    needs_base=True,
    symmetric=True,
    presets={
        "mergekit": {"reinforce": 0.0},
        "mergekit_plus": {"reinforce": 0.1, "cap": 0.2, "scope": "tensor"},
    },
)
def ram(
    *,
    scale: float = 1.0,
    tol: NonNegative = 1e-5,
    reinforce: NonNegative = 0.0,
    cap: NonNegative = 0.2,
    scope: Literal["tensor", "model"] = "tensor",
) -> TensorFuser | SurveyFuser | StagedFuser:
    """Add up the changes that one member alone made, and average those that several made.

    A weight that only member t changed adds lambda_t tau_t, one that several changed the mean of
    their changes. lambda_t = 1 + reinforce min(cap, shared / alone) makes up for what the mean
    dilutes, by how many weights t changed with others and alone; RAM has no such factor, RAM+ has.

    Args:
        scale: multiplies the merged change before it is added to the base.
        tol: changes up to this magnitude count as none.
        reinforce: how much changes of one member alone are raised (r of RAM+).
        cap: the largest ratio of shared to own changes that counts (alpha of RAM+).
        scope: count a member's changes in each tensor (mergekit) or in the whole model.
    """

    def combine(slab: Slab, factors: Tensor | None) -> Tensor:
        count = _changed(slab, tol)
        alone = count == 1
        several = count > 1
        count.clamp_(min=1)

        def parts() -> Iterator[Tensor]:
            for index, change in enumerate(slab.deltas()):
                change *= change.abs() > tol
                own = change * alone
                if factors is not None:
                    own *= factors[index].to(own)
                yield own.add_(change.mul_(several).div_(count))

        return slab.base + add_up(parts()).mul_(scale)

    if not reinforce:
        return TensorFuser(lambda slab: combine(slab, None), elementwise=True)
    if scope == "tensor":

        def survey(slab: Slab) -> Callable[[Slab], Tensor]:
            seen = torch.zeros(slab.count, 2, dtype=torch.int64)
            for part in slab.stretches(together=True):
                seen += _shared_and_alone(part, tol)
            factors = _factors(seen, reinforce, cap)
            return lambda part: combine(part, factors)

        return SurveyFuser(survey)

    def stages() -> Stages:
        factors = _factors((yield _Counts(tol)), reinforce, cap)
        return TensorFuser(lambda slab: combine(slab, factors), elementwise=True)

    return StagedFuser(stages, passes=1)


def _changed(slab: Slab, tol: float) -> Tensor:
    """How many members changed each weight."""
    total: Tensor | None = None
    for change in slab.deltas():
        one = (change.abs() > tol).to(torch.int32)
        total = one if total is None else total.add_(one)
    return torch.zeros_like(slab.base, dtype=torch.int32) if total is None else total


def _shared_and_alone(slab: Slab, tol: float) -> Tensor:
    """Of each member: how many weights it changed with others, and how many alone."""
    count = _changed(slab, tol)
    found = []
    for change in slab.deltas():
        own = change.abs() > tol
        alone = int((own & (count == 1)).sum())
        found.append([int(own.sum()) - alone, alone])
    return torch.tensor(found, dtype=torch.int64)


def _factors(seen: Tensor, reinforce: float, cap: float) -> Tensor:
    # In fp32, as the program that this is compared with; no change alone makes any ratio the cap.
    ratio = (seen[:, 0] / seen[:, 1].clamp(min=1e-5)).clamp(0, cap)
    return 1 + reinforce * ratio


@dataclass(frozen=True)
class _Counts:
    """What each member changed with others and alone, in the whole model."""

    tol: float
    elementwise: bool = True

    def begin(self, count: int) -> Tensor:
        return torch.zeros(count, 2, dtype=torch.int64)

    def observe(self, seen: Tensor, slab: Slab) -> None:
        seen += _shared_and_alone(slab, self.tol)

    def finish(self, parts: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(parts)).sum(dim=0)
