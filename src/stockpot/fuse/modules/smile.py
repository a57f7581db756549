"""SMILE: low-rank experts of every linear layer, without data (Tang et al., arXiv:2408.10174)."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import TensorFuser
from stockpot.fuse.learning.coefficients import coefficient_fuser
from stockpot.fuse.learning.learner import Learned, ModuleFuser
from stockpot.fuse.learning.task_pool import TaskPool
from stockpot.fuse.spectral.decompose import (
    RANK_TOLERANCE,
    check_tolerance,
    kept,
    leading_triples,
    rounding_floor,
)
from stockpot.fuse.statistics.gram import linear_layers
from stockpot.types import Count, NonNegative


@fusers.register("smile", paper="arXiv:2408.10174", needs_base=True, linear=True, learns=True)
def smile(
    *,
    rank: Count = 32,
    gate_rank: Count = 16,
    top_k: Count = 1,
    others: Literal["base", "average"] = "base",
    rank_tolerance: NonNegative = RANK_TOLERANCE,
) -> ModuleFuser:
    """Keep the base, and beside every linear layer the members' changes as low-rank experts.

    Each token asks the expert in whose leading input directions it lies furthest: no data, no
    training. The result is a module: a folder that `load_model` reads.

    Args:
        rank: singular triples of each member's change that its expert keeps.
        gate_rank: right singular vectors that decide which expert is asked.
        top_k: experts that a token asks, weighed by a softmax.
        others: what is not a linear layer stays as in the base, or is the members' average.
        rank_tolerance: singular values up to this share of a change's Frobenius norm count as
            rounding: no expert keeps them, and no token is drawn by them.
    """
    check_tolerance(rank_tolerance)

    def learn(pool: TaskPool) -> Learned:
        coefficients = torch.zeros(len(pool), len(pool.names))
        if others == "average":
            coefficients += 1 / len(pool)
            for number, _ in _layers(pool).values():
                coefficients[:, number] = 0.0
            for _, bias in _layers(pool).values():
                if bias is not None:
                    coefficients[:, bias] = 0.0
        return Learned({"coefficients": coefficients}, {"names": list(pool.names)})

    def parts(pool: TaskPool, learned: Learned) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors: dict[str, Tensor] = {}
        changed = []
        for path, (number, bias) in _layers(pool).items():
            changes = pool.deltas[:, pool.spans[number]].view(len(pool), *pool.shapes[number])
            if not bool(changes.any()):
                continue  # no member changed it
            changed.append(path)
            up, down, gate = [], [], []
            for change in changes:
                floor = rounding_floor(change, rank_tolerance)
                left, values, right = leading_triples(change, floor)
                size = kept(values, floor, rank)
                up.append(left[:, :size].T)
                down.append(values[:size, None] * right[:size])
                gate.append(right[: kept(values, floor, gate_rank)])
            tensors[f"{path}.up"] = _stacked(up).transpose(1, 2).contiguous()
            tensors[f"{path}.down"] = _stacked(down)
            tensors[f"{path}.gate"] = _stacked(gate)
            if bias is not None:
                tensors[f"{path}.bias"] = pool.deltas[:, pool.spans[bias]].clone()
        return tensors, {"layers": changed, "top_k": top_k, "experts": list(pool.members)}

    return ModuleFuser("low_rank_experts", learn, _fuser, parts)


def _stacked(parts: list[Tensor]) -> Tensor:
    """Rows of several members; those with fewer get rows of zeros."""
    return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True).float()


def _fuser(learned: Learned) -> TensorFuser:
    return coefficient_fuser(learned.facts["names"], learned.tensors["coefficients"])


def _layers(pool: TaskPool) -> dict[str, tuple[int, int | None]]:
    """Path of each fused linear layer in the network -> numbers of its weight and bias."""
    number = {place: index for index, place in enumerate(pool.places)}
    of_name = dict(zip(pool.names, pool.places, strict=True))
    found = {}
    for name in linear_layers(pool):
        place = of_name[name]
        path = place.removeprefix("network.").removesuffix(".weight")
        found[path] = (number[place], number.get(f"network.{path}.bias"))
    return found
