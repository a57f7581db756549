"""Low-rank experts beside every linear layer, chosen token by token by their own subspaces.

y = W_0 x + b_0 + sum_t w_t(x) (U_t S_t V_t^T x + d_t), w the softmax over |V_t^T x| restricted to
the best `top_k` experts (SMILE, Tang et al., arXiv:2408.10174). A token's output depends on that
token alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


class ExpertLinear(nn.Module):
    """A linear layer and its experts."""

    def __init__(
        self, layer: nn.Linear, up: Tensor, down: Tensor, gate: Tensor, bias: Tensor | None,
        top_k: int,
    ) -> None:  # fmt: skip
        """Put experts beside a layer.

        Args:
            layer: the shared part.
            up: U, experts x outputs x rank.
            down: S V^T, experts x rank x inputs.
            gate: V^T, experts x gate rank x inputs.
            bias: the experts' own, experts x outputs.
            top_k: how many experts a token asks.
        """
        super().__init__()
        self.layer = layer
        self.top_k = top_k
        self.up = nn.Parameter(up, requires_grad=False)
        self.down = nn.Parameter(down, requires_grad=False)
        self.gate = nn.Parameter(gate, requires_grad=False)
        self.bias_changes = None if bias is None else nn.Parameter(bias, requires_grad=False)

    @property
    def weight(self) -> Tensor:
        """The shared weight; some networks ask a layer for its dtype."""
        return self.layer.weight

    @property
    def in_features(self) -> int:
        """As of the shared layer."""
        return self.layer.in_features

    @property
    def out_features(self) -> int:
        """As of the shared layer."""
        return self.layer.out_features

    def shares(self, tokens: Tensor) -> Tensor:
        """Tokens x experts: how much each expert counts; zero for those not asked."""
        experts = len(self.gate)
        seen = (tokens @ self.gate.flatten(0, 1).T).view(len(tokens), experts, -1).norm(dim=2)
        best, chosen = seen.softmax(dim=1).topk(min(self.top_k, experts), dim=1)
        shares = torch.zeros_like(seen)
        return shares.scatter(1, chosen, best / best.sum(dim=1, keepdim=True))

    def forward(self, values: Tensor) -> Tensor:
        shared: Tensor = self.layer(values)
        tokens = values.reshape(-1, values.shape[-1])
        shares = self.shares(tokens)
        experts, rank = self.down.shape[:2]
        inner = (tokens @ self.down.flatten(0, 1).T).view(-1, experts, rank) * shares[:, :, None]
        # experts x outputs x rank -> (experts rank) x outputs
        added = inner.flatten(1) @ self.up.transpose(1, 2).flatten(0, 1)
        if self.bias_changes is not None:
            added = added + shares @ self.bias_changes
        return shared + added.view(shared.shape)


def add_experts(
    network: nn.Module,
    tensors: Mapping[str, Tensor],
    settings: Mapping[str, Any],
    task: int | None,
) -> nn.Module:
    """Put the experts that a fusion wrote beside the layers of a plain network."""
    for path in settings["layers"]:
        layer = network.get_submodule(path)
        if not isinstance(layer, nn.Linear):
            raise KeyError(f"{path} is no linear layer")
        parent, _, leaf = path.rpartition(".")
        expert = ExpertLinear(
            layer,
            tensors[f"{path}.up"],
            tensors[f"{path}.down"],
            tensors[f"{path}.gate"],
            tensors.get(f"{path}.bias"),
            int(settings["top_k"]),
        )
        setattr(network.get_submodule(parent), leaf, expert)
    return network
