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

from stockpot.models.plain import vit

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


class Patches(nn.Module):
    """The patches of a picture as the rows of one product."""

    def __init__(self, like: vit.PatchEmbeddings) -> None:
        super().__init__()
        self.projection = like.projection

    def forward(self, pixels: Tensor) -> Tensor:
        count, channels, height, width = pixels.shape
        weight = self.projection.weight
        side = weight.shape[-1]
        rows, columns = height // side, width // side
        parts = pixels[:, :, : rows * side, : columns * side]
        parts = parts.reshape(count, channels, rows, side, columns, side)
        lines = parts.permute(0, 2, 4, 1, 3, 5).reshape(count, rows * columns, -1)
        return F.linear(lines, weight.flatten(1), self.projection.bias)


class Tokens(nn.Module):
    """The layers of a vision transformer, each sum made together with the norm that reads it."""

    def __init__(self, like: vit.Tower) -> None:
        super().__init__()
        self.config = like.config
        self.embeddings = like.embeddings
        self.layers = like.layers
        self.layernorm = like.layernorm
        embeddings: Any = self.embeddings
        embeddings.patch_embeddings = Patches(embeddings.patch_embeddings)

    def forward(self, pixels: Tensor) -> Tensor:
        layers: list[Any] = list(self.layers)
        tokens: Tensor = self.embeddings(pixels)
        read: Tensor = (layers[0].layernorm_before if layers else self.layernorm)(tokens)
        for place, layer in enumerate(layers):
            last = place + 1 == len(layers)
            follows = self.layernorm if last else layers[place + 1].layernorm_before
            tokens, read = add_norm(layer.attention(read), tokens, layer.layernorm_after)
            tokens, read = add_norm(layer.mlp(read), tokens, follows)
        return read


def add_norm(change: Tensor, tokens: Tensor, norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
    """The sum, and its layer norm."""

    def plain() -> tuple[Tensor, Tensor]:
        total = change + tokens
        return total, norm(total)

    if not tokens.is_cuda or not (change.is_contiguous() and tokens.is_contiguous()):
        return plain()

    def kernel() -> tuple[Tensor, Tensor]:
        from stockpot.models.forward.fused.kernels import add_norm as run

        return run(change, tokens, norm.weight, norm.bias, norm.eps)

    return by_kernel_or("norm", kernel, plain)


def has_tower(model: nn.Module) -> bool:
    """Whether a network has a tower that `with_tokens` knows, in evaluation mode."""
    return any(_is_known(module) for module in model.modules())


def with_tokens(model: nn.Module) -> bool:
    """Give a copy such towers; says whether there was one."""
    names = [name for name, module in model.named_modules() if _is_known(module)]
    for name in names:
        tower: Any = model.get_submodule(name)
        model.set_submodule(name, Tokens(tower).eval())
    return bool(names)


def _is_known(module: nn.Module) -> bool:
    if type(module) is not vit.Tower or module.training:
        return False
    patches = module.embeddings.patch_embeddings
    return type(patches) is vit.PatchEmbeddings and all(
        type(layer) is vit.Layer for layer in module.layers
    )
