"""A model that does not fit on one device: weights, gradients and optimiser state in shards.

FSDP2 (`torch.distributed.fsdp.fully_shard`): every process keeps a part of each tensor, and a block
is put together for the moment in which it is passed. What is saved are whole tensors under their
usual names, so a state written by many processes is read by one, and the other way round.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from stockpot.errors import BadParameterError
from stockpot.harden.many.processes import workers

M = TypeVar("M", bound=nn.Module)


def need_many() -> None:
    """Raise unless there are processes to share among."""
    if workers() < 2:
        raise BadParameterError(
            "shard: expected several processes to share the model, got one.",
            hint="Start with torchrun --nproc-per-node N -m stockpot harden ..., or leave it away.",
        )


def check_for_shards(batch: int, ema: float) -> None:
    """Raise on settings that a model in shards cannot be trained with."""
    if ema:
        raise BadParameterError(f"ema: expected 0 for a model in shards, got {ema}.")
    if batch % workers():
        # A pass takes all processes, so all must make as many.
        raise BadParameterError(
            f"batch_size: expected a multiple of the {workers()} processes for a model in shards, "
            f"got {batch}."
        )


def in_shards(model: M, device: torch.device) -> M:
    """A copy of a model whose weights are dealt out over all processes, on their devices."""
    # Imported here: they take a second, and few trainings need them.
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (workers(),))
    working = copy.deepcopy(model)
    for block in blocks(working):
        fully_shard(block, mesh=mesh)
    fully_shard(working, mesh=mesh)
    return working


def blocks(model: nn.Module) -> Iterator[nn.Module]:
    """What is put together at a time: the outermost members of lists of layers."""
    for child in model.children():
        if isinstance(model, nn.ModuleList | nn.Sequential):
            if any(True for _ in child.parameters()):
                yield child
        else:
            yield from blocks(child)


def is_in_shards(model: nn.Module) -> bool:
    """Whether no process has the whole of it."""
    return any(is_shard(parameter) for parameter in model.parameters())


def is_shard(value: object) -> bool:
    """Whether a value is a part of a tensor."""
    return isinstance(value, Tensor) and hasattr(value, "full_tensor")


def local(value: Tensor) -> Tensor:
    """What of a tensor lies here."""
    part: Tensor = value.to_local() if is_shard(value) else value  # type: ignore[attr-defined]
    return part


def whole(tree: Any) -> Any:
    """A nested value with whole tensors for shards, on the CPU. To be called by all processes."""
    if is_shard(tree):
        return tree.full_tensor().cpu()
    if isinstance(tree, dict):
        return {key: whole(value) for key, value in tree.items()}
    return tree


def load_weights(model: nn.Module, state: dict[str, Tensor]) -> None:
    """Give a model whole weights, be it in shards or not."""
    if not is_in_shards(model):
        model.load_state_dict(state)
        return
    with torch.no_grad():
        for name, own in model.state_dict().items():
            own.copy_(_dealt_out(state[name], own))


def load_optimiser(optimiser: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Give an optimiser whole tensors, be its weights in shards or not."""
    moved = [weight for group in optimiser.param_groups for weight in group["params"]]
    known = {
        place: {
            key: _dealt_out(value, moved[place]) if _is_like(value, moved[place]) else value
            for key, value in values.items()
        }
        for place, values in state["state"].items()
    }
    optimiser.load_state_dict({**state, "state": known})


def _is_like(value: Any, weight: Tensor) -> bool:
    return is_shard(weight) and isinstance(value, Tensor) and value.shape == weight.shape


def _dealt_out(value: Tensor, like: Any) -> Tensor:
    if not is_shard(like):
        return value.to(like.device)
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements)
