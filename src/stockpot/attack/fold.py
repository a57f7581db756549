"""A faster copy of a convolutional network: batch norms folded into the convolutions before them.

Which norm follows which convolution is seen from one look at a few images, so nothing is assumed of
how the network is written. If the copy's outputs differ from the original's by more than rounding
(a convolution feeds something else too, or the model is random), the original is used.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

Model = Callable[[Tensor], Tensor]


def folded(model: Model, images: Tensor) -> Model:
    """The folded copy in NHWC layout, or the model itself where that is not possible."""
    if not isinstance(model, nn.Module) or not len(images):
        return model
    few = images[:8]
    with torch.no_grad():
        expected = model(few)
        twin = copy.deepcopy(model)
        for convolution, norm in adjacent(twin, few):
            layer: Any = twin.get_submodule(convolution)
            statistics: Any = twin.get_submodule(norm)
            twin.set_submodule(convolution, fuse_conv_bn_eval(layer, statistics))
            twin.set_submodule(norm, nn.Identity())
        twin = twin.requires_grad_(False).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        found = twin(few)
    scale = expected.abs().amax().clamp(min=1e-12)
    # A GPU may convolve in TF32, which rounds the two by different amounts.
    rounding = 1e-4 if images.device.type == "cpu" else 1e-2
    close = float((found - expected).abs().amax() / scale) < rounding
    return twin if close else model


def adjacent(model: nn.Module, images: Tensor) -> list[tuple[str, str]]:
    """Names of convolutions and of the batch norms that read exactly what they give."""
    made: dict[int, str] = {}
    kept: list[Tensor] = []  # so that no id is used twice
    pairs: list[tuple[str, str]] = []
    runs: dict[str, int] = {}

    def hook(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def see(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            runs[name] = runs.get(name, 0) + 1
            if isinstance(module, nn.Conv2d):
                made[id(output)] = name
                kept.append(output)
            elif id(inputs[0]) in made and module.running_mean is not None:
                pairs.append((made.pop(id(inputs[0])), name))

        return see

    handles = [
        module.register_forward_hook(hook(name))
        for name, module in model.named_modules()
        if isinstance(module, nn.Conv2d | nn.BatchNorm2d)
    ]
    try:
        model(images)
    finally:
        for handle in handles:
            handle.remove()
    # A layer that runs twice has two neighbours; fold only what runs once.
    return [pair for pair in pairs if runs[pair[0]] == 1 and runs[pair[1]] == 1]
