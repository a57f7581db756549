"""A classifier as one module that can be recorded, compiled and lowered in precision.

Pixels are normalised in full precision by constants that the module owns. In bfloat16 what decides
between classes stays in full precision too: two logits that differ by less than 2^-8 of their size
would be one number.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from stockpot.models.classifier import Classifier
from stockpot.models.forward.ends import ConvReLU
from stockpot.models.forward.fused.layers import Entry, can_halve, entered, level_table
from stockpot.models.plain.resnet import Stem
from stockpot.models.zero_shot import ZeroShotNetwork


class Normalised(nn.Module):
    """The network of a plain classifier behind its normalisation."""

    def __init__(self, model: Classifier, dtype: torch.dtype) -> None:
        super().__init__()
        self.training = model.training
        self.network = model.network
        self.preprocess = model.preprocess
        self.dtype = dtype
        self.entry = _entry(model.network)
        self.mean: Tensor
        self.std: Tensor
        self.table: Tensor
        for name, values in (("mean", model.preprocess.mean), ("std", model.preprocess.std)):
            constants = torch.tensor(values, dtype=torch.float32, device=model.device)
            self.register_buffer(name, constants.view(1, 3, 1, 1), persistent=False)
        self.register_buffer("table", level_table(self.mean, self.std, dtype), persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.network(self._seen(pixels))
        return logits.float()

    def _seen(self, pixels: Tensor) -> Tensor:
        dense = pixels.is_cuda and pixels.dtype == torch.uint8 and pixels.is_contiguous()
        if self.preprocess.bgr:
            pixels = pixels.flip(1)
        elif dense and pixels.shape[1] == 3 and tuple(pixels.shape[2:]) == self.preprocess.size:
            odd = any(side % 2 for side in self.preprocess.size)
            entry = "wide" if odd and self.entry == "halved" else self.entry
            found = entered(pixels, self.table, entry)
            if found is not None:
                return found
        if not pixels.is_floating_point():
            pixels = pixels.float() / 255
        seen = (self.preprocess.fit_tensor(pixels) - self.mean) / self.std
        return seen.to(self.dtype)


def _entry(network: nn.Module) -> Entry:
    """Who reads the pixels first: the layer with weights that comes first."""
    first = next(
        (part for part in network.modules() if next(part.parameters(False), None) is not None), None
    )
    if not isinstance(first, ConvReLU):
        return "plain"
    # Of our own network it is known that nothing else looks at the pixels.
    ours = any(type(part) is Stem for part in network.modules())
    return "halved" if ours and can_halve(first) else "wide"


class _Mixed(nn.Module):
    """A classifier that does more than to run its network, such as a defence around another."""

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> Tensor:
        with torch.autocast(pixels.device.type, torch.bfloat16):
            logits: Tensor = self.model(pixels)
        return logits.float()


class InFull(nn.Module):
    """A layer that is given full precision and keeps it."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, values: Tensor) -> Tensor:
        outputs: Tensor = self.layer(values.float())
        return outputs


def normalised(model: Classifier, *, half: bool) -> nn.Module:
    """The classifier as one module; with `half` in bfloat16, its weights changed in place."""
    plain = type(model).forward is Classifier.forward
    if not plain:
        return _Mixed(model) if half else model
    if half:
        _lower(model.network)
    return Normalised(model, torch.bfloat16 if half else torch.float32)


def _lower(network: nn.Module) -> None:
    """All of a network in bfloat16 but its head: the last linear layer, or text embeddings."""
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
        return
    linear = [name for name, module in network.named_modules() if isinstance(module, nn.Linear)]
    head_layer = deepcopy(network.get_submodule(linear[-1])) if linear else None
    network.to(torch.bfloat16)
    if head_layer is not None:
        network.set_submodule(linear[-1], InFull(head_layer))
