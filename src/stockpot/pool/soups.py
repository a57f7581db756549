"""The soups of Wortsman et al. (arXiv:2203.05482, arXiv:2109.01903): how their weights are chosen.

`stockpot.fuse` offers them as `uniform_soup`, `wise_ft`, `greedy_soup` and `learned_soup`,
`stockpot.season` as `uniform`, `wise_ft`, `greedy` and `learned`. Both call what is here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from stockpot.pool.pool import Pool


def equal_weights(members: int, kept: Sequence[int] | None = None) -> Tensor:
    """The uniform soup of all members, or of some."""
    if kept is None:
        return torch.full((members,), 1 / members, dtype=torch.float64)
    weights = torch.zeros(members, dtype=torch.float64)
    weights[list(kept)] = 1 / len(kept)
    return weights


def line_weights(alpha: float) -> list[float]:
    """WiSE-FT's weights: the share `alpha` of the second of two models."""
    return [1 - alpha, alpha]


class Judged(NamedTuple):
    """What a soup is worth on held-out images."""

    accuracy: float
    loss: float
    """The mean; it tells members apart that are equally accurate."""


class Greedy(NamedTuple):
    """Which members a greedy soup kept, and what it saw."""

    weights: Tensor
    kept: list[int]
    """In the order in which they were added."""
    alone: list[float]
    """The accuracy of each member."""
    trace: list[float]
    """The accuracy after each member that was kept."""


def greedy(
    members: int,
    judge: Callable[[Tensor], Judged],
    *,
    strict: bool = False,
    tried: Callable[[int], None] | None = None,
) -> Greedy:
    """Add members to a mean, best first, as long as the accuracy does not fall.

    Equally accurate members come in the order of their losses, not in that of their names.

    Args:
        members: how many there are.
        judge: says what a soup with one weight per member is worth.
        strict: a member must raise the accuracy to be kept, as in the paper's text; otherwise it
            must not lower it. With few images a strict rise rejects what changes no prediction.
        tried: called with the number of members that were tried.
    """
    found = [judge(equal_weights(members, [index])) for index in range(members)]
    alone = [each.accuracy for each in found]
    losses = [math.inf if math.isnan(each.loss) else each.loss for each in found]
    order = sorted(range(members), key=lambda index: (-alone[index], losses[index]))
    kept = [order[0]]
    trace = [alone[order[0]]]
    for done, index in enumerate(order[1:], start=1):
        if tried is not None:
            tried(done)
        accuracy = judge(equal_weights(members, [*kept, index])).accuracy
        if accuracy > trace[-1] or (accuracy == trace[-1] and not strict):
            kept.append(index)
            trace.append(accuracy)
    return Greedy(equal_weights(members, kept), kept, alone, trace)


class LearnedSoup:
    """Convex weights, a softmax over the members for every tensor, and one temperature.

    AdamW with a constant step and no weight decay minimises the cross-entropy, as in the paper's
    code. The softmax allows no extrapolation. The temperature only serves the learning: it changes
    no prediction, and the soup goes without.
    """

    def __init__(self, pool: Pool, lr: float) -> None:
        """Start from equal weights.

        Args:
            pool: the members; it must be watched while the soup learns.
            lr: the step size.
        """
        self._pool = pool
        self.free = torch.zeros(len(pool), len(pool.names), device=pool.device, requires_grad=True)
        self.heat = torch.zeros((), device=pool.device, requires_grad=True)
        self.optimiser = torch.optim.AdamW([self.free, self.heat], lr=lr, weight_decay=0.0)

    def step(self, outputs: Callable[[], Tensor], losses: Callable[[Tensor], Tensor]) -> Tensor:
        """One step on one batch.

        Args:
            outputs: the working model's, once it is the present soup.
            losses: of each image of the batch, from outputs at the present temperature.

        Returns:
            The loss, on the device.
        """
        weights = self.free.softmax(dim=0)
        self._pool.form(weights.detach())
        self._pool.settle()
        self._pool.zero_gradient()
        loss = losses(outputs().float() * self.heat.exp()).mean()
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        weights.backward(self._pool.pull())  # type: ignore[no-untyped-call]
        self.optimiser.step()
        return loss.detach()

    @property
    def weights(self) -> Tensor:
        """Members x tensors, in double precision."""
        return self.free.detach().double().softmax(dim=0).cpu()
