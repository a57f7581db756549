"""A second set of norms for a second kind of image: scales, offsets and running statistics.

They begin as copies of the model's own, lie outside of it, and take their place for a while. So the
model keeps its architecture and the names of its weights, and in the end has its own norms alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

NORMS = (_BatchNorm, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


class _Other(NamedTuple):
    norm: nn.Module
    parameters: dict[str, nn.Parameter]
    buffers: dict[str, Tensor]


class AuxiliaryNorms:
    """The second set of a model's norms."""

    def __init__(self, model: nn.Module) -> None:
        self._others = {
            name: _Other(
                module,
                {
                    key: nn.Parameter(own.detach().clone(), requires_grad=own.requires_grad)
                    for key, own in module._parameters.items()
                    if own is not None
                },
                {key: own.clone() for key, own in module._buffers.items() if own is not None},
            )
            for name, module in model.named_modules()
            if isinstance(module, NORMS)
        }

    def __len__(self) -> int:
        return len(self._others)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside, the model's norms are these."""
        own = [
            (other, dict(other.norm._parameters), dict(other.norm._buffers))
            for other in self._others.values()
        ]
        for other, _, _ in own:
            other.norm._parameters.update(other.parameters)
            other.norm._buffers.update(other.buffers)
        try:
            yield
        finally:
            for other, parameters, buffers in own:
                # A layer may have put a new tensor in a buffer's place.
                other.buffers.update(
                    {key: now for key, now in other.norm._buffers.items() if now is not None}
                )
                other.norm._parameters.update(parameters)
                other.norm._buffers.update(buffers)

    def parameters(self) -> list[nn.Parameter]:
        """Scales and offsets, to be trained."""
        return [p for other in self._others.values() for p in other.parameters.values()]

    def state_dict(self) -> dict[str, Any]:
        """Everything, as plain tensors."""
        return {
            f"{name}.{key}": value.detach().clone()
            for name, other in self._others.items()
            for key, value in {**other.parameters, **other.buffers}.items()
        }

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take saved values, in place: an optimiser may hold the tensors."""
        for name, other in self._others.items():
            for key, value in {**other.parameters, **other.buffers}.items():
                value.copy_(state[f"{name}.{key}"])
