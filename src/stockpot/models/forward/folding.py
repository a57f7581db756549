"""A faster copy of a convolutional network: batch norms folded into the convolutions before them.

Which norm follows which convolution is seen from one look at a few images, so nothing is assumed of
how the network is written. If the copy's outputs differ from the original's by more than rounding
(a convolution feeds something else too, or the model is random), the original is used.

Training against an adversary looks at the model ten times a step in evaluation mode, with the same
weights. There the copy is made once and renewed at every step, which costs about as much as reading
the weights once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

Model = Callable[[Tensor], Tensor]


class Looked(NamedTuple):
    """What a model answered to a few images, and which batch norm read which convolution."""

    answers: Tensor
    pairs: list[tuple[str, str]]


def folded(model: Model, images: Tensor) -> Model:
    """The folded copy in NHWC layout, or the model itself where that is not possible."""
    if not isinstance(model, nn.Module) or not len(images):
        return model
    few = images[:8]
    with torch.no_grad():
        looked = looked_at(model, few)
        twin: nn.Module = folded_copy(model, looked.pairs).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return twin if is_folded(looked.answers, twin(few)) else model


@torch.no_grad()
def folded_copy(model: nn.Module, pairs: list[tuple[str, str]]) -> nn.Module:
    """A copy whose convolutions do the work of these batch norms too."""
    twin = copy.deepcopy(model)
    for convolution, norm in pairs:
        layer: Any = twin.get_submodule(convolution)
        statistics: Any = twin.get_submodule(norm)
        twin.set_submodule(convolution, fuse_conv_bn_eval(layer, statistics))
        twin.set_submodule(norm, nn.Identity().train(statistics.training))
    return twin.requires_grad_(False)


def is_folded(expected: Tensor, found: Tensor) -> bool:
    """Whether a folded copy gives the answers of its model, up to rounding."""
    scale = expected.abs().amax().clamp(min=1e-12)
    # A GPU may convolve in TF32, which rounds the two by different amounts.
    rounding = 1e-4 if expected.device.type == "cpu" else 1e-2
    return float((found - expected).abs().amax() / scale) < rounding


def adjacent(model: nn.Module, images: Tensor) -> list[tuple[str, str]]:
    """Names of convolutions and of the batch norms that read exactly what they give."""
    return looked_at(model, images).pairs


def looked_at(model: nn.Module, images: Tensor) -> Looked:
    """One pass over a few images, with all that it shows."""
    made: dict[int, tuple[str, Tensor]] = {}  # with the tensor: no id is used twice
    pairs: list[tuple[str, str]] = []
    runs: dict[str, int] = {}

    def hook(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def see(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            runs[name] = runs.get(name, 0) + 1
            if isinstance(module, nn.Conv2d):
                made[id(output)] = (name, output)
            elif id(inputs[0]) in made and module.running_mean is not None:
                pairs.append((made.pop(id(inputs[0]))[0], name))

        return see

    handles = [
        module.register_forward_hook(hook(name))
        for name, module in model.named_modules()
        if isinstance(module, nn.Conv2d | nn.BatchNorm2d)
    ]
    try:
        answers: Tensor = model(images)
    finally:
        for handle in handles:
            handle.remove()
    # A layer that runs twice has two neighbours; fold only what runs once.
    return Looked(answers, [pair for pair in pairs if runs[pair[0]] == 1 and runs[pair[1]] == 1])


@torch.no_grad()
def folded_weights(model: nn.Module, pairs: list[tuple[str, str]]) -> dict[str, Tensor]:
    """Parameters and buffers of a model by the names they have in its folded copy.

    The steps are those of `fuse_conv_bn_weights`, each taken for all layers in one call: to take
    them a layer at a time keeps whoever feeds a GPU for longer than a pass.
    """
    found: dict[str, Tensor] = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    layers: list[Any] = [model.get_submodule(convolution) for convolution, _ in pairs]
    norms: list[Any] = [model.get_submodule(norm) for _, norm in pairs]
    if not pairs:
        return found
    roots = [torch.rsqrt(norm.running_var + norm.eps) for norm in norms]
    ones, zeros = torch.ones_like(roots[0][:1]), torch.zeros_like(roots[0][:1])
    own = [ones if norm.weight is None else norm.weight for norm in norms]
    least = [zeros if norm.bias is None else norm.bias for norm in norms]
    shifts = [
        -norm.running_mean if layer.bias is None else layer.bias - norm.running_mean
        for layer, norm in zip(layers, norms, strict=True)
    ]
    scales = [
        scale.to(layer.weight.dtype).view(-1, *[1] * (layer.weight.ndim - 1))
        for layer, scale in zip(layers, torch._foreach_mul(own, roots), strict=True)
    ]
    weights = torch._foreach_mul([layer.weight for layer in layers], scales)
    biases = torch._foreach_add(torch._foreach_mul(torch._foreach_mul(shifts, roots), own), least)
    for (convolution, _), layer, weight, bias in zip(pairs, layers, weights, biases, strict=True):
        found[f"{convolution}.weight"] = weight
        found[f"{convolution}.bias"] = bias.to(layer.weight.dtype)
    return found


class RenewedCopy:
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


_copies: WeakKeyDictionary[nn.Module, dict[torch.dtype, RenewedCopy]] = WeakKeyDictionary()
"""By dtype: a recorded step of training knows its copy by its place in memory, so that one in
another dtype must not take its place."""


def renewed_copy(model: nn.Module, images: Tensor, dtype: torch.dtype) -> nn.Module:
    """The model's folded copy with its present weights, or the model itself where none is possible.

    To be called in evaluation mode. Convolutions of the copy have the given dtype.
    """
    made = _copies.setdefault(model, {})
    known = made.get(dtype)
    if known is None or known.made_for != _signature(model, images, dtype):
        known = made[dtype] = RenewedCopy(model, images, dtype)
    if known.copy is None:
        return model
    known.renew()
    return known.copy


def _signature(model: nn.Module, images: Tensor, dtype: torch.dtype) -> list[Any]:
    """What a copy depends on besides the weights: the layers themselves, the device, the dtype."""
    return [images.device, dtype, *map(id, model.modules())]
