"""MASS: for each image a merge of the members whose subspace it lies in (arXiv:2504.05342)."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from stockpot.errors import BadParameterError
from stockpot.fuse import fusers
from stockpot.fuse.fuser import TensorFuser
from stockpot.fuse.learning.coefficients import coefficient_fuser
from stockpot.fuse.learning.learner import Learned, ModuleFuser
from stockpot.fuse.learning.memory import Held
from stockpot.fuse.learning.task_pool import TaskPool
from stockpot.fuse.modules.blocks import mlp_blocks
from stockpot.fuse.parameters import check_share
from stockpot.fuse.spectral.decompose import (
    RANK_TOLERANCE,
    check_tolerance,
    leading_triples,
    rounding_floor,
)
from stockpot.types import Count, NonNegative, Positive

_NETWORK = "network."


@fusers.register("mass", paper="arXiv:2504.05342", needs_base=True, linear=True, learns=True)
def mass(
    *,
    threshold: float = 0.2,
    most: Count = 3,
    temperature: Positive = 1.0,
    depth: float = 0.75,
    token: Literal["first", "mean"] = "first",
    scale: float = 1.0,
    rank_tolerance: NonNegative = RANK_TOLERANCE,
) -> ModuleFuser:
    """Keep the members' leading directions, and merge for each image those it lies nearest to.

    Each member keeps int(r / T) singular triples of every matrix, as in `tsv_m`. A first pass
    through the merge of all ends at the MLP of one block; members count there by how little of the
    image lies outside of their input directions. Those above a threshold are merged as by `tsv_m`
    and answer in a second pass. No data and no training. The result is a module: a folder that
    `load_model` reads.

    Args:
        threshold: the share of the softmax over members from which on a member is merged; the
            nearest one is merged in any case.
        most: at most so many members are merged for an image.
        temperature: of the softmax; higher merges more.
        depth: which block decides, as a share of all blocks with an MLP.
        token: what of an image is compared: its first token (a class token), or the mean of all.
        scale: multiplies every merged change before it is added to the base.
        rank_tolerance: singular values up to this share of a change's Frobenius norm count as
            rounding: no member keeps them.
    """
    check_share("threshold", threshold)
    check_share("depth", depth)
    check_tolerance(rank_tolerance)

    def learn(pool: TaskPool) -> Learned:
        coefficients = torch.zeros(len(pool), len(pool.names))
        return Learned({"coefficients": coefficients}, {"names": list(pool.names)})

    def parts(pool: TaskPool, learned: Learned) -> tuple[dict[str, Tensor], dict[str, Any]]:
        blocks = mlp_blocks(pool)
        if not blocks:
            raise BadParameterError("mass: routes by the MLP of a block, and the models have none.")
        block = blocks[min(int(depth * len(blocks)), len(blocks) - 1)]
        tensors: dict[str, Tensor] = {}
        for number, place in enumerate(pool.places):
            name = place.removeprefix(_NETWORK)
            changes = pool.deltas[:, pool.spans[number]].view(len(pool), *pool.shapes[number])
            if changes.ndim != 3:
                tensors[f"{name}:change"] = changes.clone()
                continue
            share = max(1, int(min(pool.shapes[number]) * (1 / len(pool))))
            found = [
                leading_triples(change, rounding_floor(change, rank_tolerance), share)
                for change in changes
            ]
            tensors[f"{name}:up"] = _stacked([one.left.T for one in found]).transpose(1, 2)
            tensors[f"{name}:values"] = _stacked([one.values for one in found])
            tensors[f"{name}:down"] = _stacked([one.right for one in found])
        settings = {
            "route": f"{block.path}.{next(iter(block.layers))}",
            "token": token,
            "threshold": threshold,
            "most": most,
            "temperature": temperature,
            "scale": scale,
            "experts": list(pool.members),
        }
        return tensors, settings

    return ModuleFuser("subspace_experts", learn, _fuser, parts, (Held(of_each=1),))


def _stacked(parts: list[Tensor]) -> Tensor:
    """Rows of several members; those with fewer get rows of zeros."""
    return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True).float().contiguous()


def _fuser(learned: Learned) -> TensorFuser:
    return coefficient_fuser(learned.facts["names"], learned.tensors["coefficients"])
