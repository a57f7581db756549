"""ZipIt!'s greedy pairing: which units of several networks become one (arXiv:2305.03053).

The most alike pair of all units is joined, wherever its two stand, until as many are left as one
network has. Units of one network may join too, so that a feature that only the other network has
gets a place of its own.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.errors import BadParameterError

_SMALLEST = 1e-7
"""Products of deviations below this count as this: a unit that never moves is like none."""


def correlations(covariance: Tensor) -> Tensor:
    """Covariances divided by the units' deviations."""
    deviations = covariance.diagonal().clamp(min=0).sqrt()
    return covariance / torch.outer(deviations, deviations).clamp(min=_SMALLEST)


def paired(alike: Tensor, networks: int, *, alpha: float, beta: float) -> Tensor:
    """Join units until one network's number is left.

    A joined unit is as like another as the less like of its two, times `alpha`. It counts as its
    first unit's network does. A network that has spent its budget joins no more within itself.

    Args:
        alike: how alike units are; those of the first network come first.
        networks: how many there are, each with as many units.
        alpha: multiplies the likeness of what was joined already; 0 joins it no more with units of
            the networks it came from.
        beta: the share of each network's part in all joins that may be within itself.

    Returns:
        Units x joined units: 1 where a unit went, 0 elsewhere.
    """
    total = len(alike)
    left, rest = divmod(total, networks)
    if rest:
        raise BadParameterError(
            f"units: expected as many in each of {networks} networks, got {total}."
        )
    sims = alike.double().cpu().clone()
    of = torch.arange(total) // left
    origin = torch.nn.functional.one_hot(of, networks).bool()
    """Of each joined unit, the networks that it has units of."""
    allowed = ~torch.eye(total, dtype=torch.bool)
    goes = torch.eye(total)
    alive = torch.ones(total, dtype=torch.bool)
    budget = [int((total - left) // networks * beta + 1e-4)] * networks
    for number in range(networks):
        if budget[number] < 1:
            _part(allowed, of == number)
    best, partner = _best(sims, allowed)
    for _ in range(total - left):
        if not bool(torch.isfinite(best.max())):
            # Everything left is forbidden; what has to be joined is then the most alike.
            allowed = torch.outer(alive, alive).fill_diagonal_(False)
            best, partner = _best(sims, allowed)
        first = int(best.argmax())
        first, second = sorted((first, int(partner[first])))
        goes[:, first] += goes[:, second]
        joint = torch.minimum(sims[first], sims[second])
        sims[first] = sims[:, first] = joint * alpha if alpha > 0 else joint
        both = allowed[first] & allowed[second]
        both[[first, second]] = False
        allowed[first] = allowed[:, first] = both
        alive[second] = allowed[second] = allowed[:, second] = False
        if alpha <= 0:
            mixed = origin[first] | origin[second]
            kin = (origin & mixed).any(dim=1)
            allowed[first, kin] = allowed[kin, first] = False
            origin[first] = mixed
        changed = (partner == first) | (partner == second)
        if of[first] == of[second]:
            budget[int(of[first])] -= 1
            if budget[int(of[first])] < 1:
                same = of == of[first]
                _part(allowed, same)
                changed |= same
        changed[[first, second]] = True
        # A row that did not lose its best may have found none better: likeness only falls, save
        # that of a negative one, which alpha brings nearer to zero.
        better = torch.where(allowed[:, first], sims[:, first], -torch.inf) > best
        changed |= better
        rows = changed.nonzero().reshape(-1)
        best[rows], partner[rows] = _best(sims[rows], allowed[rows])
    return goes[:, alive]


def _part(allowed: Tensor, members: Tensor) -> None:
    allowed[torch.outer(members, members)] = False


def _best(sims: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:
    """Of every row the greatest likeness that is allowed, and with whom."""
    return torch.where(allowed, sims, -torch.inf).max(dim=1)
