"""Merging weights as FusionBench's AdaMerging saves them (`save_merging_weights`).

A tensor of members x tensors (layer-wise) or of members (task-wise), in a torch or numpy file
without names: the rows follow the pool, the columns the parameters in the order of the
architecture. Buffers such as BatchNorm's statistics have no column and stay the base's.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from stockpot.checkpoints.layouts import is_batch_norm_statistic
from stockpot.errors import BadCheckpointError, BadParameterError
from stockpot.fuse.learning.task_pool import TaskPool

_TORCH = (".pt", ".pth")
_NUMPY = (".np", ".npy")


def is_merging_weights(path: str | Path) -> bool:
    """Whether a path is that of such a file, by its ending."""
    return Path(path).suffix in (*_TORCH, *_NUMPY)


def merging_weights(path: str | Path, pool: TaskPool) -> Tensor:
    """The coefficients in a file as members x tensors, in the order of the pool's."""
    found = _read(Path(path)).to(pool.device)
    if found.ndim == 1 and len(found) == len(pool):
        return found[:, None].expand(len(pool), len(pool.names)).clone()
    column = {place: number for number, place in enumerate(pool.places)}
    order = [
        column[place]
        for place in pool.model.state_dict()
        if place in column and not is_batch_norm_statistic(place)
    ]
    if found.shape != (len(pool), len(order)):
        raise BadParameterError(
            f"{path}: expected merging weights of {len(pool)} members, or of {len(pool)} members "
            f"x {len(order)} tensors, got {' x '.join(map(str, found.shape)) or 'a number'}.",
            hint="Heads are not merged there: leave them out with --head first or --head drop.",
        )
    coefficients = torch.zeros(len(pool), len(pool.names), device=pool.device)
    coefficients[:, order] = found
    return coefficients


def _read(path: Path) -> Tensor:
    if not path.is_file():
        raise BadParameterError(f"no merging weights at {path}.")
    try:
        if path.suffix in _NUMPY:
            import numpy as np

            with path.open("rb") as file:
                found = torch.from_numpy(np.load(file, allow_pickle=False))
        else:
            found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as problem:  # torch and numpy raise many kinds
        reason = str(problem).strip().partition("\n")[0]
        raise BadCheckpointError(f"{path}: no merging weights can be read: {reason}") from problem
    if not isinstance(found, Tensor) or not found.is_floating_point():
        raise BadCheckpointError(
            f"{path}: expected one tensor of merging weights, got {type(found).__name__}.",
            hint="A state dict is a model: give it as a member.",
        )
    return found.detach().float()
