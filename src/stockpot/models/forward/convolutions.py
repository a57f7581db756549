"""A folded copy whose convolutions add their bias and cut at zero by themselves, for CUDA devices.

After folding, a GPU spends more time on biases and ReLUs than on many of the convolutions: each is
a pass over memory of its own. cuDNN does both while it writes the result. It is slow, too, with
three channels of colour, which are filled up with zeros here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stockpot.models.forward.folding import Model

_WIDTH = 8  # channels that a tensor core wants at least
_ROUNDING = 1e-2


def with_relus(model: Model, images: Tensor) -> Model:
    """The same network, changed in place, or the model as it is where its outputs would differ.

    Args:
        model: a copy that is ours to change, in evaluation mode.
        images: some of what it will see.
    """
    if not isinstance(model, nn.Module) or not len(images):
        return model
    # Negatives of pictures too: what is never below zero looks the same with and without a ReLU.
    few = torch.cat([images[:8], 1 - images[:8]])
    with torch.no_grad():
        expected = model(few)
        changed = [_joined(model, *pair) for pair in _pairs(model, few)]
        try:
            found = model(few)
            scale = expected.abs().amax().clamp(min=1e-12)
            close = float((found - expected).abs().amax() / scale) < _ROUNDING
        except Exception:  # of whatever kind: not every build of cuDNN has the operation
            close = False
    if not close:
        for (conv, plain), (relu, module) in changed:
            model.set_submodule(conv, plain)
            model.set_submodule(relu, module)
    return model


class ConvReLU(nn.Conv2d):
    """A convolution and a ReLU in one operation."""

    def forward(self, pixels: Tensor) -> Tensor:
        weight = self.weight
        missing = _WIDTH - pixels.shape[1]
        if missing > 0 and self.groups == 1:
            weight = F.pad(weight, (0, 0, 0, 0, 0, missing))
            weight = weight.contiguous(memory_format=torch.channels_last)
        settings = self.stride, self.padding, self.dilation, self.groups
        apply: Callable[..., Tensor] = _Function.apply
        return apply(pixels.to(weight.dtype), weight, self.bias, *settings)


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pixels: Tensor, weight: Tensor, bias: Tensor, *settings: Any) -> Tensor:
        given = pixels.shape[1]
        if weight.shape[1] > given and settings[-1] == 1:
            shape = len(pixels), weight.shape[1], *pixels.shape[2:]
            wide = torch.empty(
                shape, dtype=pixels.dtype, device=pixels.device, memory_format=torch.channels_last
            ).zero_()
            wide[:, :given] = pixels
            pixels = wide
        if pixels.is_cuda:
            result: Tensor = torch.cudnn_convolution_relu(pixels, weight, bias, *settings)
        else:
            result = F.conv2d(pixels, weight, bias, *settings).relu_()
        ctx.save_for_backward(pixels, weight, result)
        ctx.settings, ctx.given = settings, given
        return result

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Any, ...]:
        pixels, weight, result = ctx.saved_tensors
        stride, padding, dilation, groups = ctx.settings
        slope = torch.ops.aten.threshold_backward(slope, result, 0)
        back, _, _ = torch.ops.aten.convolution_backward(
            slope, pixels, weight, None, stride, padding, dilation, False, [0, 0], groups,
            [True, False, False],
        )  # fmt: skip
        return back[:, : ctx.given], None, None, None, None, None, None


def _joined(model: nn.Module, conv: str, relu: str) -> tuple[tuple[str, nn.Module], ...]:
    """Put one module in the place of two; what was there before."""
    plain: Any = model.get_submodule(conv)
    module = model.get_submodule(relu)
    joined = ConvReLU(
        plain.in_channels, plain.out_channels, plain.kernel_size, plain.stride, plain.padding,
        plain.dilation, plain.groups, device="meta",
    )  # fmt: skip
    joined.weight, joined.bias = plain.weight, plain.bias
    model.set_submodule(conv, joined.eval())
    model.set_submodule(relu, nn.Identity())
    return (conv, plain), (relu, module)


def _pairs(model: nn.Module, images: Tensor) -> list[tuple[str, str]]:
    """Names of convolutions with a bias and of the ReLUs that read exactly what they give."""
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
            elif id(inputs[0]) in made:
                pairs.append((made.pop(id(inputs[0])), name))

        return see

    handles = [
        module.register_forward_hook(hook(name))
        for name, module in model.named_modules()
        if type(module) is nn.ReLU or (type(module) is nn.Conv2d and _plain(module))
    ]
    try:
        model(images)
    finally:
        for handle in handles:
            handle.remove()
    return [pair for pair in pairs if runs[pair[0]] == 1 and runs[pair[1]] == 1]


def _plain(layer: nn.Conv2d) -> bool:
    zeros = layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    return zeros and layer.bias is not None
