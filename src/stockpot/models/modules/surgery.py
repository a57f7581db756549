"""Representation surgery: a small correction of the features for every task.

z -> z - up(relu(down(z))), one pair of matrices per task (Yang et al., arXiv:2402.02705). The task
is the one whose classes the data has; for other data the features stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from stockpot.models.huggingface import last_linear


def corrected(features: Tensor, down: Tensor, up: Tensor) -> Tensor:
    """The features less what the correction finds too much."""
    return features - torch.relu(features @ down.T) @ up.T


def head_logits(network: nn.Module, features: Tensor) -> Tensor:
    """The logits that a network's head gives for features."""
    if hasattr(network, "logits"):
        found: Tensor = network.logits(features)  # type: ignore[operator]
        return found
    result: Tensor = last_linear(network)(features)
    return result


class Corrected(nn.Module):
    """A network whose features are corrected before its head."""

    def __init__(self, network: nn.Module, down: Tensor, up: Tensor) -> None:
        super().__init__()
        self.network = network
        self.down = nn.Parameter(down, requires_grad=False)
        self.up = nn.Parameter(up, requires_grad=False)

    def forward(self, pixels: Tensor) -> Tensor:
        return head_logits(self.network, self.features(pixels))

    def features(self, pixels: Tensor) -> Tensor:
        """The corrected representation."""
        plain: Tensor = self.network.features(pixels)  # type: ignore[operator]
        return corrected(plain, self.down, self.up)


def add_corrections(
    network: nn.Module,
    tensors: Mapping[str, Tensor],
    settings: Mapping[str, Any],
    task: int | None,
) -> nn.Module:
    """The network with the correction of a task; as it is without one."""
    if task is None:
        return network
    return Corrected(network, tensors[f"down.{task}"], tensors[f"up.{task}"])
