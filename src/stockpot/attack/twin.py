"""The folded copy of a network in training: made once, brought up to date at every step.

Training against an adversary looks at the model ten times a step in evaluation mode, with the same
weights. The copy has its batch norms folded into convolutions, so each look does less; renewing it
costs about as much as reading the weights once.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from stockpot.attack.fold import adjacent, folded


class Twin:
    """A folded copy of a model, or none where folding would change it, and the way to renew it."""

    def __init__(self, model: nn.Module, images: Tensor, dtype: torch.dtype) -> None:
        self.made_for = _signature(model, images, dtype)
        self.copy: nn.Module | None = None
        self.pairs: list[tuple[Any, Any, Any]] = []
        self.others: list[tuple[Any, Any, str]] = []
        with torch.no_grad(), torch.autocast(images.device.type, enabled=False):
            pairs = adjacent(model, images[:2])
            like = folded(model, images) if pairs else model
        if like is model or not isinstance(like, nn.Module):
            return
        self.copy = like
        # Only the convolutions take the dtype: the normalisation of pixels keeps its precision.
        for convolution, norm in pairs:
            own = like.get_submodule(convolution).to(dtype)
            self.pairs.append((own, model.get_submodule(convolution), model.get_submodule(norm)))
        folds = {id(own) for own, _, _ in self.pairs}
        for place, module in like.named_modules():
            if id(module) not in folds:
                names = [*module._parameters, *module._buffers]
                source = model.get_submodule(place)
                self.others += [(module, source, name) for name in names]

    @torch.no_grad()
    def renew(self) -> None:
        """Fold the present weights and statistics into the copy, in place."""
        for own, layer, norm in self.pairs:
            scale = torch.rsqrt(norm.running_var + norm.eps)
            scale = scale if norm.weight is None else scale * norm.weight
            own.weight.copy_(layer.weight * scale.view(-1, 1, 1, 1))
            mean = norm.running_mean if layer.bias is None else norm.running_mean - layer.bias
            own.bias.copy_(-mean * scale if norm.bias is None else norm.bias - mean * scale)
        for module, source, name in self.others:
            now = getattr(source, name)
            if now is not None:
                getattr(module, name).copy_(now)


_twins: WeakKeyDictionary[nn.Module, Twin] = WeakKeyDictionary()


def twin_of(model: nn.Module, images: Tensor, dtype: torch.dtype) -> nn.Module:
    """The model's folded copy with its present weights, or the model itself where none is possible.

    To be called in evaluation mode. Convolutions of the copy have the given dtype.
    """
    twin = _twins.get(model)
    if twin is None or twin.made_for != _signature(model, images, dtype):
        twin = _twins[model] = Twin(model, images, dtype)
    if twin.copy is None:
        return model
    twin.renew()
    return twin.copy


def _signature(model: nn.Module, images: Tensor, dtype: torch.dtype) -> list[Any]:
    """What a copy depends on besides the weights: the layers themselves, the device, the dtype."""
    return [images.device, dtype, *map(id, model.modules())]
