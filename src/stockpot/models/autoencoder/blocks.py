"""The parts of a convolutional autoencoder: residual blocks, attention, and halving or doubling.

Names and arithmetic follow the VQGAN family (arXiv:2012.09841), so that published weights fit.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Activation = Literal["silu", "swish", "mish", "gelu", "relu"]
_ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "swish": F.silu,
    "mish": F.mish,
    "gelu": F.gelu,
    "relu": F.relu,
}
ACTIVATIONS: tuple[Activation, ...] = tuple(_ACTIVATIONS)
_SPATIAL_GROUPS = 32  # MoVQ and diffusers never use another number


class Style(NamedTuple):
    """What all blocks of a coder share."""

    groups: int
    activation: Activation = "silu"
    """Between the layers of a residual block; the last layer of a coder always has `silu`."""
    cells: int = 0
    """The channels of the latent cells that a spatial norm looks at; 0 where norms are plain."""


def norm(channels: int, style: Style) -> Norm | SpatialNorm:
    """Group normalisation with the family's epsilon, conditioned on latent cells or not."""
    if style.cells:
        return SpatialNorm(channels, style.cells)
    return Norm(style.groups, channels, eps=1e-6)


class Norm(nn.GroupNorm):
    """Group normalisation in the precision of its input.

    Mixed precision would take it and the activation after it to single precision and back, which
    costs more than both convolutions around them. Sums are in single precision in any case.
    """

    def forward(self, input: Tensor, cells: Tensor | None = None) -> Tensor:
        with torch.autocast(input.device.type, enabled=False):
            weight, bias = self.weight.to(input.dtype), self.bias.to(input.dtype)
            return F.group_norm(input, self.num_groups, weight, bias, self.eps)


class SpatialNorm(nn.Module):
    """Normalisation whose gain and offset at every place come from the latent cell there (MoVQ)."""

    def __init__(self, channels: int, cells: int) -> None:
        super().__init__()
        self.norm_layer = Norm(_SPATIAL_GROUPS, channels, eps=1e-6)
        self.conv_y = nn.Conv2d(cells, channels, 1)
        self.conv_b = nn.Conv2d(cells, channels, 1)

    def forward(self, values: Tensor, cells: Tensor | None = None) -> Tensor:
        if cells is None:
            raise TypeError("a spatial norm needs the latent cells")
        spread = F.interpolate(cells, size=values.shape[-2:], mode="nearest")
        return torch.as_tensor(self.norm_layer(values) * self.conv_y(spread) + self.conv_b(spread))


class ResidualBlock(nn.Module):
    """Two normalised convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, style: Style) -> None:
        super().__init__()
        self.norm1 = norm(inputs, style)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm2 = norm(outputs, style)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        if inputs != outputs:
            self.nin_shortcut = nn.Conv2d(inputs, outputs, 1)
        self.widens = inputs != outputs
        self.activation = _ACTIVATIONS[style.activation]

    def forward(self, values: Tensor, cells: Tensor | None = None) -> Tensor:
        inner = self.conv1(self.activation(self.norm1(values, cells)))
        inner = self.conv2(self.activation(self.norm2(inner, cells)))
        shortcut = self.nin_shortcut(values) if self.widens else values
        return torch.as_tensor(inner + shortcut)


class Attention(nn.Module):
    """Every place looks at every other place, with one head."""

    def __init__(self, channels: int, style: Style) -> None:
        super().__init__()
        self.norm = norm(channels, style)
        self.q = nn.Conv2d(channels, channels, 1)
        self.k = nn.Conv2d(channels, channels, 1)
        self.v = nn.Conv2d(channels, channels, 1)
        self.proj_out = nn.Conv2d(channels, channels, 1)

    def forward(self, values: Tensor, cells: Tensor | None = None) -> Tensor:
        normed = self.norm(values, cells)
        rows = [
            layer(normed).flatten(2).transpose(1, 2)[:, None] for layer in (self.q, self.k, self.v)
        ]
        seen = F.scaled_dot_product_attention(*rows)[:, 0]
        mixed = seen.transpose(1, 2).reshape(values.shape)
        return torch.as_tensor(values + self.proj_out(mixed))


class Downsample(nn.Module):
    """Halve the side; the padding stands on the right and at the bottom only."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, stride=2)

    def forward(self, values: Tensor) -> Tensor:
        return torch.as_tensor(self.conv(F.pad(values, (0, 1, 0, 1))))


class Upsample(nn.Module):
    """Double the side by repeating pixels, then smooth."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, values: Tensor) -> Tensor:
        return torch.as_tensor(self.conv(F.interpolate(values, scale_factor=2.0, mode="nearest")))


class Level(nn.Module):
    """The blocks of one resolution, with attention after each where the level has it."""

    def __init__(self, widths: list[int], style: Style, *, attends: bool) -> None:
        super().__init__()
        pairs = list(pairwise(widths))
        self.block = nn.ModuleList(ResidualBlock(a, b, style) for a, b in pairs)
        self.attn = nn.ModuleList(Attention(b, style) for _, b in pairs if attends)
        # Replaced by the coder where the level is not its last.
        self.downsample: nn.Module = nn.Identity()
        self.upsample: nn.Module = nn.Identity()

    def forward(self, values: Tensor, cells: Tensor | None = None) -> Tensor:
        for index, block in enumerate(self.block):
            values = block(values, cells)
            if len(self.attn):
                values = self.attn[index](values, cells)
        return values


class Middle(nn.Module):
    """The blocks at the lowest resolution, around one attention."""

    def __init__(self, channels: int, style: Style, *, attends: bool) -> None:
        super().__init__()
        self.block_1 = ResidualBlock(channels, channels, style)
        self.attn_1 = Attention(channels, style) if attends else None
        self.block_2 = ResidualBlock(channels, channels, style)

    def forward(self, values: Tensor, cells: Tensor | None = None) -> Tensor:
        values = self.block_1(values, cells)
        if self.attn_1 is not None:
            values = self.attn_1(values, cells)
        return torch.as_tensor(self.block_2(values, cells))
