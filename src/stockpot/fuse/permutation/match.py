"""Git Re-Basin by weight matching: permute one network towards another (arXiv:2209.04836)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from stockpot.fuse.permutation.spec import PermutationSpec

Permutations = dict[str, Tensor]
"""Group -> for each place, the unit that goes there."""


def match_weights(
    reference: Mapping[str, Tensor],
    other: Mapping[str, Tensor],
    spec: PermutationSpec,
    *,
    rounds: int = 100,
    seed: int = 0,
) -> Permutations:
    """Find permutations of `other` that bring its weights nearest to `reference`.

    One group is solved exactly (a linear assignment) while the others are held, in random order,
    until no group can be improved. That may end short of the best: a network that is the reference
    with its units in other places is known by its units first, and comes back whole.

    Args:
        reference: the network to come close to.
        other: the network that is permuted.
        spec: which units may change places.
        rounds: the largest number of rounds over all groups.
        seed: of the order in which groups are visited.
    """
    from scipy.optimize import linear_sum_assignment

    if (same := _copied(reference, other, spec)) is not None:
        return same
    found = {group: torch.arange(size) for group, size in spec.sizes.items()}
    table = spec.groups_of()
    generator = torch.Generator().manual_seed(seed)
    groups = list(spec.sizes)
    for _ in range(rounds):
        improved = False
        for index in torch.randperm(len(groups), generator=generator).tolist():
            group = groups[index]
            gain = _gain(group, reference, other, spec, found, table)
            rows, columns = linear_sum_assignment(gain.numpy(), maximize=True)
            new = torch.empty_like(found[group])
            new[torch.from_numpy(rows)] = torch.from_numpy(columns)
            before = gain[torch.arange(len(new)), found[group]].sum()
            after = gain[torch.arange(len(new)), new].sum()
            if after > before + 1e-9 * before.abs().clamp(min=1e-12):
                found[group] = new
                improved = True
        if not improved:
            break
    return found


def _copied(
    reference: Mapping[str, Tensor], other: Mapping[str, Tensor], spec: PermutationSpec
) -> Permutations | None:
    """The permutations that make `other` the reference, bit for bit; none where it is another."""
    found = {}
    for group in sorted(spec.sizes, key=lambda name: spec.sizes[name]):
        mine, theirs = (_marks(state, group, spec) for state in (reference, other))
        places = {mark: unit for unit, mark in enumerate(theirs)}
        if len(places) < len(theirs) or places.keys() != set(mine):
            return None  # of most networks the first group tells
        found[group] = torch.tensor([places[mark] for mark in mine])
    moved = permuted(other, found, spec)
    same = all(torch.equal(value, reference[name]) for name, value in moved.items())
    return found if same else None


def _marks(state: Mapping[str, Tensor], group: str, spec: PermutationSpec) -> list[bytes]:
    """What tells the units of a group apart wherever those of other groups are: their weights in
    order of size."""
    size = spec.sizes[group]
    parts = [_by_unit(state[place.tensor], place.axis, size) for place in spec.axes[group]]
    rows = torch.cat([part.double().cpu().sort(dim=1).values for part in parts], dim=1) + 0.0
    return [row.numpy().tobytes() for row in rows]


def permuted(
    state: Mapping[str, Tensor], permutations: Permutations, spec: PermutationSpec
) -> dict[str, Tensor]:
    """The same network with its units in other places."""
    table = spec.groups_of()
    return {
        name: _permute(value, table.get(name, {}), permutations) for name, value in state.items()
    }


def _permute(
    value: Tensor,
    axes: Mapping[int, tuple[str, int]],
    permutations: Permutations,
    skip: int | None = None,
) -> Tensor:
    for axis, (group, block) in axes.items():
        if axis != skip:
            units = permutations[group]
            places = (units[:, None] * block + torch.arange(block)).reshape(-1)
            value = value.index_select(axis, places.to(value.device))
    return value


def _gain(
    group: str,
    reference: Mapping[str, Tensor],
    other: Mapping[str, Tensor],
    spec: PermutationSpec,
    found: Permutations,
    table: Mapping[str, Mapping[int, tuple[str, int]]],
) -> Tensor:
    """How alike each unit of the reference is to each unit of the other network."""
    size = spec.sizes[group]
    gain = torch.zeros(size, size, dtype=torch.float64)
    for place in spec.axes[group]:
        mine = reference[place.tensor].double()
        theirs = _permute(other[place.tensor].double(), table[place.tensor], found, place.axis)
        gain += _by_unit(mine, place.axis, size) @ _by_unit(theirs, place.axis, size).T
    return gain


def _by_unit(value: Tensor, axis: int, units: int) -> Tensor:
    return value.movedim(axis, 0).reshape(units, -1)
