"""Rank-one experts: an MLP that adds singular triples of the experts' changes, gated per image.

y = W_0 x + b + sum_k g_k u_k (s_k v_k' x), over the leading triples of all experts; the gates g are
an image's own and the same for all linear layers of the MLP (github.com/EnnengYang/RankOne-MoE).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from stockpot.models.modules.weight_ensemble import Gated, Router, place_block

_SHARP = 100.0
"""How steeply the selection falls off below the last gate that is chosen."""


class FactoredLinear(Gated):
    """A linear layer and the rank-one parts that gates of its block weigh."""

    def __init__(self, layer: nn.Linear, up: Tensor, down: Tensor) -> None:
        """Put factors beside a layer.

        Args:
            layer: the shared part.
            up: u, parts x outputs.
            down: s v', parts x inputs.
        """
        super().__init__(layer)
        self.up = nn.Parameter(up, requires_grad=False)
        self.down = nn.Parameter(down, requires_grad=False)

    def forward(self, values: Tensor) -> Tensor:
        shared: Tensor = self.layer(values)
        gates = self.given().view(-1, *[1] * (values.ndim - 2), len(self.up))
        return shared + ((values @ self.down.T) * gates) @ self.up


class Selected(nn.Module):
    """A router of which the largest gates count, and others the less the further below they are."""

    def __init__(self, router: Router, count: int | None) -> None:
        super().__init__()
        self.router = router
        self._count = count

    def forward(self, tokens: Tensor) -> Tensor:
        """Images x tokens x width -> images x parts."""
        gates: Tensor = self.router(tokens)
        if self._count is None:
            return gates
        last = gates.topk(min(self._count, gates.shape[-1]), dim=-1).values.amin(-1, keepdim=True)
        return gates * torch.sigmoid(_SHARP * (gates - last))


def factor_block(
    network: nn.Module,
    path: str,
    factors: Mapping[str, tuple[Tensor, Tensor]],
    gates: Selected,
) -> None:
    """Put gated rank-one parts beside the linear layers of an MLP.

    Args:
        network: holds the MLP.
        path: the MLP's name in it.
        factors: name of a linear layer in the MLP -> up and down.
        gates: gives the gates.
    """
    mlp = network.get_submodule(path)
    layers = {}
    for name, (up, down) in factors.items():
        layer = mlp.get_submodule(name)
        if not isinstance(layer, nn.Linear):
            raise KeyError(f"{path}.{name} is no linear layer")
        layers[name] = FactoredLinear(layer, up, down)
    place_block(network, path, layers, gates, "image")


def add_experts(
    network: nn.Module,
    tensors: Mapping[str, Tensor],
    settings: Mapping[str, Any],
    task: int | None,
) -> nn.Module:
    """Turn a plain network into one with rank-one experts, from what the fusion wrote."""
    parts = len(settings["experts"]) * settings["rank"]
    for path, block in settings["blocks"].items():
        router = Router(block["width"], parts, depth=settings["depth"], init=0.0, seed=0)
        prefix = f"routers.{path}."
        router.load_state_dict(
            {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        )
        factors = {
            name: (tensors[f"parts.{path}.{name}.up"], tensors[f"parts.{path}.{name}.down"])
            for name in block["layers"]
        }
        gates = Selected(router.requires_grad_(False), settings["top_k"])
        factor_block(network, path, factors, gates)
    return network
