"""A convolution with all that follows it: its bias, what a block adds, and the ReLU.

On a GPU each of the three would read and write all maps once more, and in a residual network that
takes as long as the convolutions. cuDNN does them while it writes the result, a kernel of ours in
one pass over it; which is faster depends on shapes and precision. With gradients for the pixels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stockpot.models.forward.fused.layers import WIDTH, by_kernel_or, halved_weight

Kernel = Literal["cudnn", "triton", "torch"]
"""Who makes the end of a convolution on a GPU; `torch` in three passes."""

_MOST = 2**31 - 4096
"""Numbers of a tensor that the kernel can count."""


class ConvReLU(nn.Conv2d):
    """A convolution that adds its bias and what it is given, and cuts at zero."""

    kernel: Kernel = "cudnn"
    rest: Tensor | None = None
    """What the next result has added to it, by the block around."""
    more: Tensor | None = None
    """What its bias has added to it, by the block around."""

    def forward(self, pixels: Tensor) -> Tensor:
        (rest, self.rest), (more, self.more) = (self.rest, None), (self.more, None)
        weight, bias = self.weight, self.bias
        if more is not None and bias is not None:
            bias = bias + more
        settings: tuple[Any, ...] = self.stride, self.padding, self.dilation, self.groups
        missing = WIDTH - pixels.shape[1]
        if getattr(pixels, "entry", None) == "halved":
            weight, pixels = halved_weight(weight), pixels.whole  # type: ignore[attr-defined]
            settings = (1, 1), (0, 0), (1, 1), 1
        elif missing > 0 and self.groups == 1 and self.kernel != "torch":
            weight = F.pad(weight, (0, 0, 0, 0, 0, missing))
            weight = weight.contiguous(memory_format=torch.channels_last)
            pixels = getattr(pixels, "whole", pixels)
        apply: Callable[..., Tensor] = _Function.apply
        return apply(pixels.to(weight.dtype), weight, bias, rest, self.kernel, *settings)


class Residual(nn.Module):
    """A block of a residual network whose last convolution adds the shortcut.

    The bias of a convolution in the shortcut is added with the last one's: by itself it would take
    another pass over the widest maps of the block.
    """

    def __init__(self, block: Any, last: str) -> None:
        super().__init__()
        self.layer, self.shortcut = block.layer, block.shortcut
        self.last = last

    def forward(self, maps: Tensor) -> Tensor:
        last: Any = self.layer.get_submodule(self.last)
        around = self._lone()
        if around is None:
            last.rest = self.shortcut(maps)
        else:
            settings: Any = around.stride, around.padding, around.dilation, around.groups
            last.rest = F.conv2d(maps, around.weight, None, *settings)
            # Detached: a module would take a parameter for one of its own.
            last.more = None if around.bias is None else around.bias.detach()
        result: Tensor = self.layer(maps)
        return result

    def _lone(self) -> nn.Conv2d | None:
        """The convolution that is all that the shortcut does, if so."""
        parts = [part for part in self.shortcut.modules() if next(part.children(), None) is None]
        own = [part for part in parts if not isinstance(part, nn.Identity)]
        plain = len(own) == 1 and type(own[0]) is nn.Conv2d and own[0].padding_mode == "zeros"
        found: Any = own[0] if plain else None
        return found  # type: ignore[no-any-return]


def conv_relu(layer: nn.Conv2d) -> ConvReLU:
    """A convolution followed by a ReLU, as one layer with the same weights."""
    # As torch copies replicas: a new layer would draw weights first, which takes longer.
    made = ConvReLU.__new__(ConvReLU)
    vars(made).update(vars(layer))
    made._parameters = dict(layer._parameters)
    if made.bias is None:
        zeros = torch.zeros_like(layer.weight[:, 0, 0, 0])
        made.bias = nn.Parameter(zeros, requires_grad=False)
    return made


def by_kernel(model: nn.Module, kernel: Kernel) -> None:
    """Let all such layers of a network use one kernel from now on."""
    for module in model.modules():
        if isinstance(module, ConvReLU):
            module.kernel = kernel


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        pixels: Tensor,
        weight: Tensor,
        bias: Tensor,
        rest: Tensor | None,
        kernel: Kernel,
        *settings: Any,
    ) -> Tensor:
        given = pixels.shape[1]
        if weight.shape[1] > given and settings[-1] == 1:
            shape = len(pixels), weight.shape[1], *pixels.shape[2:]
            wide = torch.empty(
                shape, dtype=pixels.dtype, device=pixels.device, memory_format=torch.channels_last
            ).zero_()
            wide[:, :given] = pixels
            pixels = wide
        result: Tensor
        if not pixels.is_cuda or kernel != "cudnn":
            result = F.conv2d(pixels, weight, None, *settings)
            result = end(result, bias, rest, kernel)
        elif is_slow(pixels, weight, rest, settings):
            result = by_kernel_or(
                "convolution",
                lambda: _by_ours(pixels, weight, bias, rest),
                lambda: _by_cudnn(pixels, weight, bias, rest, settings),
            )
        else:
            result = _by_cudnn(pixels, weight, bias, rest, settings)
        ctx.save_for_backward(pixels, weight, result)
        ctx.settings, ctx.given, ctx.adds = settings, given, rest is not None
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
        rest = slope if ctx.adds else None
        return back[:, : ctx.given], None, None, rest, None, None, None, None, None


def is_slow(pixels: Tensor, weight: Tensor, rest: Tensor | None, settings: tuple[Any, ...]) -> bool:
    """Whether cuDNN has no quick kernel for it, and we have one.

    It is so for halved pictures as the first convolution reads them (of 500 of 224 px 3.4 ms and
    0.8), and for 64 channels that become many, with what a block adds (0.9 ms and 0.5).
    """
    filters, channels, *side = weight.shape
    if weight.dtype != torch.bfloat16 or settings != ((1, 1), (0, 0), (1, 1), 1):
        return False
    if not all(
        part.is_contiguous(memory_format=torch.channels_last)
        for part in (pixels, weight, rest)
        if part is not None
    ):
        return False
    if rest is None:
        return (channels, *side) == (16, 4, 4) and filters in (16, 32, 64, 128)
    return (channels, *side) == (64, 1, 1) and filters % 64 == 0


def _by_ours(pixels: Tensor, weight: Tensor, bias: Tensor, rest: Tensor | None) -> Tensor:
    from stockpot.models.forward.fused.convolutions import added, windows

    return windows(pixels, weight, bias) if rest is None else added(pixels, weight, bias, rest)


def _by_cudnn(
    pixels: Tensor, weight: Tensor, bias: Tensor, rest: Tensor | None, settings: tuple[Any, ...]
) -> Tensor:
    result: Tensor
    if rest is None:
        result = torch.cudnn_convolution_relu(pixels, weight, bias, *settings)
    else:
        result = torch.cudnn_convolution_add_relu(pixels, weight, rest, 1.0, bias, *settings)
    return result


def end(maps: Tensor, bias: Tensor, rest: Tensor | None, kernel: Kernel = "triton") -> Tensor:
    """`relu(maps + bias + rest)`, in the place of the maps."""
    dense = all(
        part.is_contiguous(memory_format=torch.channels_last)
        for part in (maps, rest)
        if part is not None
    )
    if kernel == "triton" and maps.is_cuda and dense and maps.numel() < _MOST:
        from stockpot.models.forward.end_kernel import run_end

        return run_end(maps, bias, rest)
    maps += bias.view(1, -1, 1, 1)
    if rest is not None:
        maps += rest
    return maps.relu_()
