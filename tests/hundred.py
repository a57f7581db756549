"""Bases and a hundred members of each, from seeds: what a method that takes many is compared on.

`base` and `member`: changes of the matrix have rank one, every tenth member changed nothing, the
vector changes sparsely and so that some weights are changed by one member alone. `network` and
`tuned`: two linear layers and a norm, whose changes have full rank or, every third, rank two.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

COUNT = 100


def base() -> dict[str, Tensor]:
    return {"layers.0.weight": _draw((6, 5), 1), "layers.0.bias": _draw((40,), 2)}


def member(number: int) -> dict[str, Tensor]:
    """One of the hundred."""
    start = base()
    if number % 10 == 9:
        return start
    left, right = _draw((6, 1), 10 + number), _draw((1, 5), 1000 + number)
    start["layers.0.weight"] += 0.1 * left @ right
    places = [number % 37] if number < 60 else [number % 37, 39 - number // 40]
    start["layers.0.bias"][places] += 0.01 * (1 + number % 7)
    return start


def network() -> dict[str, Tensor]:
    layers = nn.Sequential(nn.Linear(7, 9), nn.LayerNorm(9), nn.Linear(9, 5, bias=False))
    generator = torch.Generator().manual_seed(0)
    return {k: torch.randn(v.shape, generator=generator) for k, v in layers.state_dict().items()}


def tuned(start: dict[str, Tensor], number: int) -> dict[str, Tensor]:
    """One of the hundred of the network. The first changes matrices by full rank."""
    generator = torch.Generator().manual_seed(1 + number)
    changed = {}
    for name, value in start.items():
        change = torch.randn(value.shape, generator=generator)
        if number % 3 == 1 and value.ndim == 2:
            # Not by a matrix product, whose last bits depend on the processor.
            change = change[:, :1] * change[:1] + change[:, 1:2] * change[1:2]
        changed[name] = value + 0.1 * change
    return changed


def _draw(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
