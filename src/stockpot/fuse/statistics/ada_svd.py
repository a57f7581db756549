"""AdaSVD: SMILE's experts, asked on images and then reduced to one coefficient each.

FusionBench has it as an experiment on top of SMILE (Tang et al., arXiv:2408.10174).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from stockpot.fuse import fusers
from stockpot.fuse.fuser import TensorFuser
from stockpot.fuse.learning.coefficients import coefficient_fuser
from stockpot.fuse.learning.learner import DataFuser, Learned
from stockpot.fuse.learning.memory import Held
from stockpot.fuse.learning.task_pool import TaskPool
from stockpot.fuse.modules.experts import low_rank_experts, resting, weights_of_layers
from stockpot.fuse.spectral.decompose import RANK_TOLERANCE, check_tolerance
from stockpot.models.modules.low_rank import ExpertLinear
from stockpot.types import Count, NonNegative, Seed


@fusers.register(
    "ada_svd",
    paper="arXiv:2408.10174",
    needs_base=True,
    linear=True,
    symmetric=True,
    learns=True,
    needs_data=True,
)
def ada_svd(
    *,
    scale: float = 1.0,
    weights: list[float] | None = None,
    gate_rank: Count = 16,
    examples: Count = 256,
    batch_size: Count = 32,
    others: Literal["base", "average"] = "base",
    rank_tolerance: NonNegative = RANK_TOLERANCE,
    seed: Seed = 0,
) -> DataFuser:
    """Weigh each member's change to a linear layer by how often images would ask for it.

    Every linear layer of the base gets the members' whole changes as experts, which a token asks by
    a softmax over how far it lies in each one's leading input directions. The mean of these shares
    over the images of all tasks is the member's coefficient in that layer. Labels are not read.

    Args:
        scale: multiplies the coefficients.
        weights: one number per member, multiplied into its coefficients; all 1 by default.
        gate_rank: right singular vectors that decide which member is asked.
        examples: images of each task.
        batch_size: images per forward pass.
        others: what is not a linear layer stays as in the base, or is the members' average.
        rank_tolerance: singular values up to this share of a change's Frobenius norm count as
            rounding: no token is drawn by them.
        seed: of the choice of images.
    """
    check_tolerance(rank_tolerance)

    def learn(pool: TaskPool) -> Learned:
        tasks = pool.need_tasks("ada_svd")
        pool.load_base()
        coefficients = resting(pool, others)
        layers = weights_of_layers(pool)
        with _asked(pool, layers, gate_rank, rank_tolerance) as shares:
            for index, task in enumerate(tasks):
                pool.progress("asking experts", index, len(tasks))
                fit = pool.model.preprocess.fit
                for batch in task.sample(examples, batch_size, seed, fit):
                    with torch.no_grad():
                        pool.logits(task, batch.images)
        factors = torch.tensor(weights or [1.0] * len(pool), dtype=torch.float64) * scale
        for path, mean in shares.items():
            weight, bias = layers[path]
            for number in (weight, bias):
                if number is not None:
                    coefficients[:, number] = (mean.share * factors).float()
        return Learned({"coefficients": coefficients}, {"names": list(pool.names)})

    return DataFuser(learn, _fuser, (Held(batch_size, backward=False, of_each=1),))


def _fuser(learned: Learned) -> TensorFuser:
    return coefficient_fuser(learned.facts["names"], learned.tensors["coefficients"])


class _Mean:
    """The mean share of every expert over all tokens that a layer sees."""

    def __init__(self, experts: int) -> None:
        self._sum = torch.zeros(experts, dtype=torch.float64)
        self._count = 0

    @property
    def share(self) -> Tensor:
        return self._sum / max(self._count, 1)

    def __call__(self, layer: ExpertLinear, inputs: tuple[Tensor], output: Any) -> None:
        tokens = inputs[0].reshape(-1, inputs[0].shape[-1])
        self._sum += layer.shares(tokens).sum(dim=0, dtype=torch.float64).cpu()
        self._count += len(tokens)


@contextmanager
def _asked(
    pool: TaskPool, layers: dict[str, tuple[int, int | None]], gate_rank: int, tolerance: float
) -> Iterator[dict[str, _Mean]]:
    """The working model with dense experts beside its linear layers, each with a mean."""
    network: nn.Module = pool.model.network
    found: dict[str, _Mean] = {}
    plain: dict[str, nn.Module] = {}
    for path, (weight, bias) in layers.items():
        changes = pool.deltas[:, pool.spans[weight]].view(len(pool), *pool.shapes[weight])
        if not bool(changes.any()):
            continue  # no member changed it
        layer = network.get_submodule(path)
        if not isinstance(layer, nn.Linear):
            continue
        own = None if bias is None else pool.deltas[:, pool.spans[bias]]
        up, down, gate = low_rank_experts(changes, None, gate_rank, tolerance)
        experts = ExpertLinear(layer, up, down, gate, own, len(pool))
        found[path], plain[path] = _Mean(len(pool)), layer
        experts.register_forward_hook(found[path])
        _put(network, path, experts)
    try:
        yield found
    finally:
        for path, layer in plain.items():
            _put(network, path, layer)


def _put(network: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, leaf = path.rpartition(".")
    setattr(network.get_submodule(parent), leaf, module)
