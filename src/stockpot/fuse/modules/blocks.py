"""The MLPs of a network, and what the members changed in them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stockpot.errors import BadCheckpointError
from stockpot.fuse.learning.task_pool import TaskPool


@dataclass(frozen=True)
class Block:
    """An MLP of the working model."""

    path: str
    """Its name in the network."""
    width: int
    """Of the tokens that enter it."""
    layers: Mapping[str, tuple[int, int | None]]
    """Linear layer in the MLP -> numbers of its weight and bias among the fused tensors."""

    @property
    def numbers(self) -> list[int]:
        """The fused tensors that it holds."""
        return [n for pair in self.layers.values() for n in pair if n is not None]

    def changes(
        self, pool: TaskPool, density: float = 1.0
    ) -> dict[str, tuple[Tensor, Tensor | None]]:
        """For each layer the members' changes of weight and bias, members first."""
        return {
            name: (
                _changes(pool, weight, density),
                None if bias is None else _changes(pool, bias, density),
            )
            for name, (weight, bias) in self.layers.items()
        }


def mlp_blocks(pool: TaskPool) -> list[Block]:
    """The modules called `mlp` whose linear layers are fused, in order."""
    number = {place: index for index, place in enumerate(pool.places)}
    found = []
    for path, module in pool.model.network.named_modules():
        if path.rpartition(".")[2] != "mlp":
            continue
        layers: dict[str, tuple[int, int | None]] = {}
        width = 0
        for name, layer in module.named_modules():
            weight = number.get(f"network.{path}.{name}.weight")
            if isinstance(layer, nn.Linear) and weight is not None:
                width = width or layer.in_features
                layers[name] = (weight, number.get(f"network.{path}.{name}.bias"))
        if layers:
            found.append(Block(path, width, layers))
    return found


def need_blocks(pool: TaskPool, method: str) -> list[Block]:
    """The blocks, for a method that cannot do without."""
    blocks = mlp_blocks(pool)
    if not blocks:
        raise BadCheckpointError(
            f"{method}: expected a transformer with MLP blocks, got "
            f"{pool.model.origin.architecture}."
        )
    return blocks


@contextmanager
def frozen(pool: TaskPool) -> Iterator[None]:
    """The working model with weights that learn nothing."""
    learning = [weight for weight in pool.model.parameters() if weight.requires_grad]
    for weight in learning:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in learning:
            weight.requires_grad_(True)


def _changes(pool: TaskPool, number: int, density: float) -> Tensor:
    changes = pool.deltas[:, pool.spans[number]].view(len(pool), *pool.shapes[number])
    if density >= 1:
        return changes
    return torch.stack([pruned(change, density) for change in changes])


def pruned(change: Tensor, density: float) -> Tensor:
    """The entries beyond a quantile of their magnitudes; the others become zero."""
    flat = change.abs().reshape(-1)
    kept = math.ceil(density * (len(flat) - 1))
    if kept == 0:
        return torch.zeros_like(change)
    limit = flat.kthvalue(len(flat) - kept).values
    return change * (change.abs() > limit)
