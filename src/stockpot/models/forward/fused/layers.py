"""Layers of our copies of networks that do in one pass over their maps what usually takes several.

They have the weights of the layers in whose place they stand, under the same names, and no
gradients. Where a kernel cannot run, the plain operations give the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any, Literal, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

T = TypeVar("T")
WIDTH = 8
"""Channels that a tensor core wants at least; three of colour are filled up with zeros."""
_LEVELS = 256
_failed: set[str] = set()


def by_kernel_or(name: str, kernel: Callable[[], T], plain: Callable[[], T]) -> T:
    """What a kernel gives, or the plain operations from the first time on that it cannot."""
    if name in _failed or not _has_triton():
        return plain()
    try:
        return kernel()
    except torch.OutOfMemoryError:
        raise
    except Exception:  # of whatever kind: a compiler may be missing
        _failed.add(name)
        return plain()


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def level_table(mean: Tensor, std: Tensor, dtype: torch.dtype) -> Tensor:
    """What each of 256 levels becomes in each channel, channels x 256, by the operations that
    normalise pictures: to look a level up is to compute it.
    """
    levels = torch.arange(_LEVELS, device=mean.device).to(torch.uint8).view(1, 1, _LEVELS, 1)
    values = (levels.expand(1, mean.shape[1], _LEVELS, 1).float() / 255 - mean) / std
    return values[0, :, :, 0].to(dtype).contiguous()


Entry = Literal["plain", "wide", "halved"]
"""Who reads the pixels first: anybody, a convolution that wants `WIDTH` channels, or one of 7 x 7
with stride 2, which is one of 4 x 4 over places of half the sides with twelve channels each. With
three channels it uses an eighth of a tensor core's work, with twelve the most of it."""
_AROUND = (2, 1)
"""Zeros before and after the places, where a convolution of 7 x 7 looks over the edge."""
_HALVED_WIDTH = 16


def entered(pixels: Tensor, table: Tensor, entry: Entry) -> Tensor | None:
    """Levels as a network reads them, or none where they must be computed.

    What a convolution of ours reads is the attribute `whole` of the result; where it is `halved`,
    nothing else may read it.

    Args:
        pixels: uint8, NCHW, dense, on a GPU.
        table: `level_table`.
        entry: who reads them.
    """

    def kernel() -> Tensor | None:
        from stockpot.models.forward.fused.kernels import enter, enter_halved, look_up

        if entry == "plain":
            return look_up(pixels, table)
        shown: Any
        if entry == "wide":
            whole = enter(pixels, table, WIDTH)
            shown = whole[:, : len(table)]
        else:
            whole = enter_halved(pixels, table, _HALVED_WIDTH, *_AROUND)
            shown = table.new_zeros(1).expand(pixels.shape)
        shown.whole, shown.entry = whole, entry
        return shown  # type: ignore[no-any-return]

    return by_kernel_or("entry", kernel, lambda: None)


def can_halve(layer: nn.Conv2d) -> bool:
    """Whether a convolution can read halved pictures."""
    shape = layer.in_channels, layer.kernel_size, layer.stride, layer.padding, layer.dilation
    return shape == (3, (7, 7), (2, 2), (3, 3), (1, 1)) and layer.groups == 1


def halved_weight(weight: Tensor) -> Tensor:
    """Weights of a convolution of 7 x 7 for halved pictures: those of 4 x 4 with 16 channels."""
    count, colours = weight.shape[:2]
    even = F.pad(weight, (1, 0, 1, 0))  # a row and a column of zeros come first
    parts = even.reshape(count, colours, 4, 2, 4, 2).permute(0, 3, 5, 1, 2, 4)
    own = parts.reshape(count, 4 * colours, 4, 4)
    filled = F.pad(own, (0, 0, 0, 0, 0, _HALVED_WIDTH - own.shape[1]))
    return filled.contiguous(memory_format=torch.channels_last)


class Pool(nn.MaxPool2d):
    """A maximum over windows of maps whose channels come last."""

    def forward(self, maps: Tensor) -> Tensor:
        plain: Callable[[Tensor], Tensor] = super().forward
        if not maps.is_cuda or not maps.is_contiguous(memory_format=torch.channels_last):
            return plain(maps)
        side, stride, padding = (_number(one) for one in (
            self.kernel_size, self.stride, self.padding
        ))  # fmt: skip
        if side is None or stride is None or padding is None:
            return plain(maps)

        def kernel() -> Tensor:
            from stockpot.models.forward.fused.kernels import pool

            return pool(maps, side, stride, padding)

        return by_kernel_or("pool", kernel, lambda: plain(maps))


def _number(value: int | tuple[int, ...]) -> int | None:
    if isinstance(value, int):
        return value
    return value[0] if len(set(value)) == 1 else None


def with_pools(model: nn.Module) -> None:
    """Give a copy pools of ours."""
    for name, module in list(model.named_modules()):
        plain = type(module) is nn.MaxPool2d and module.dilation == 1
        if plain and not (module.ceil_mode or module.return_indices):
            model.set_submodule(
                name, Pool(module.kernel_size, module.stride, module.padding).eval()
            )
