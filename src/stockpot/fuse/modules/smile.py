"""SMILE: low-rank experts of every linear layer, without data (Tang et al., arXiv:2408.10174)."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import TensorFuser
from stockpot.fuse.learning.coefficients import coefficient_fuser
from stockpot.fuse.learning.learner import Learned, ModuleFuser
from stockpot.fuse.learning.memory import Held
from stockpot.fuse.learning.task_pool import TaskPool
from stockpot.fuse.modules.experts import low_rank_experts, resting, weights_of_layers
from stockpot.fuse.spectral.decompose import RANK_TOLERANCE, check_tolerance
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
        return Learned({"coefficients": resting(pool, others)}, {"names": list(pool.names)})

    def parts(pool: TaskPool, learned: Learned) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors: dict[str, Tensor] = {}
        changed = []
        for path, (number, bias) in weights_of_layers(pool).items():
            changes = pool.deltas[:, pool.spans[number]].view(len(pool), *pool.shapes[number])
            if not bool(changes.any()):
                continue  # no member changed it
            changed.append(path)
            up, down, gate = low_rank_experts(changes, rank, gate_rank, rank_tolerance)
            tensors |= {f"{path}.up": up, f"{path}.down": down, f"{path}.gate": gate}
            if bias is not None:
                tensors[f"{path}.bias"] = pool.deltas[:, pool.spans[bias]].clone()
        return tensors, {"layers": changed, "top_k": top_k, "experts": list(pool.members)}

    return ModuleFuser("low_rank_experts", learn, _fuser, parts, (Held(of_each=1),))


def _fuser(learned: Learned) -> TensorFuser:
    return coefficient_fuser(learned.facts["names"], learned.tensors["coefficients"])
