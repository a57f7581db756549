"""The members' changes to linear layers as low-rank experts."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from stockpot.fuse.learning.task_pool import TaskPool
from stockpot.fuse.spectral.decompose import kept, leading_triples, rounding_floor
from stockpot.fuse.statistics.gram import linear_layers


def weights_of_layers(pool: TaskPool) -> dict[str, tuple[int, int | None]]:
    """Path of each fused linear layer in the network -> numbers of its weight and bias."""
    number = {place: index for index, place in enumerate(pool.places)}
    of_name = dict(zip(pool.names, pool.places, strict=True))
    found = {}
    for name in linear_layers(pool):
        place = of_name[name]
        path = place.removeprefix("network.").removesuffix(".weight")
        found[path] = (number[place], number.get(f"network.{path}.bias"))
    return found


def resting(pool: TaskPool, others: Literal["base", "average"]) -> Tensor:
    """Coefficients of what is not a linear layer: those of the base, or of the average."""
    coefficients = torch.zeros(len(pool), len(pool.names))
    if others == "average":
        coefficients += 1 / len(pool)
        for weight, bias in weights_of_layers(pool).values():
            coefficients[:, weight] = 0.0
            if bias is not None:
                coefficients[:, bias] = 0.0
    return coefficients


def low_rank_experts(
    changes: Tensor, rank: int | None, gate_rank: int, tolerance: float
) -> tuple[Tensor, Tensor, Tensor]:
    """U, S V' and the gates' V' of every member, members first; fewer vectors end in zeros.

    Args:
        changes: members x outputs x inputs.
        rank: singular triples that an expert keeps; all by default.
        gate_rank: right singular vectors that decide which expert is asked.
        tolerance: singular values up to this share of a change's length count as rounding.
    """
    up, down, gate = [], [], []
    for change in changes:
        floor = rounding_floor(change, tolerance)
        left, values, right = leading_triples(change, floor)
        size = kept(values, floor, rank)
        up.append(left[:, :size].T)
        down.append(values[:size, None] * right[:size])
        gate.append(right[: kept(values, floor, gate_rank)])
    return _stacked(up).transpose(1, 2).contiguous(), _stacked(down), _stacked(gate)


def _stacked(parts: list[Tensor]) -> Tensor:
    """Rows of several members; those with fewer get rows of zeros."""
    return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True).float()
