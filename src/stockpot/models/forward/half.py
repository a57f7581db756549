"""A copy of a network in bfloat16, which keeps in full precision what decides between classes."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from stockpot.models.classifier import Classifier
from stockpot.models.zero_shot import ZeroShotNetwork


class _InFull(nn.Module):
    """A layer that is given full precision and keeps it."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, values: Tensor) -> Tensor:
        outputs: Tensor = self.layer(values.float())
        return outputs


class _Half(nn.Module):
    """A classifier whose network works in bfloat16; pixels are normalised in full precision."""

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> Tensor:
        seen = self.model.seen(pixels).bfloat16()
        logits: Tensor = self.model.network(seen)
        return logits.float()


class _Mixed(nn.Module):
    """A classifier that does more than to run its network, such as a defence around another."""

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> Tensor:
        with torch.autocast(pixels.device.type, torch.bfloat16):
            logits: Tensor = self.model(pixels)
        return logits.float()


def in_half(model: Classifier) -> nn.Module:
    """The classifier with its network in bfloat16; its weights are changed in place.

    Two logits that differ by less than 2^-8 of their size would be one number in bfloat16, so the
    head stays in full precision: the last linear layer, or the text embeddings of a dual encoder.
    """
    if type(model).forward is not Classifier.forward:
        return _Mixed(model)
    network = model.network
    if isinstance(network, ZeroShotNetwork):
        towers: Any = network.model
        kept = {
            name: getattr(towers, name).detach().clone()
            for name in ("logit_scale", "logit_bias")
            if getattr(towers, name, None) is not None
        }
        head = network.head
        network.to(torch.bfloat16)
        network.head = head
        for name, value in kept.items():
            getattr(towers, name).data = value
        return _Half(model)
    linear = [name for name, module in network.named_modules() if isinstance(module, nn.Linear)]
    head_layer = network.get_submodule(linear[-1]) if linear else None
    exact = deepcopy(head_layer)
    network.to(torch.bfloat16)
    if exact is not None:
        network.set_submodule(linear[-1], _InFull(exact))
    return _Half(model)
