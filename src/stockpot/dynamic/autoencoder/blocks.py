"""The parts of a convolutional autoencoder: residual blocks, attention, and halving or doubling.

Names and arithmetic follow the VQGAN family (arXiv:2012.09841), so that published weights fit.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def norm(channels: int, groups: int) -> nn.GroupNorm:
    """Group normalisation with the family's epsilon."""
    return Norm(groups, channels, eps=1e-6)


class Norm(nn.GroupNorm):
    """Group normalisation in the precision of its input.

    Mixed precision would take it and the activation after it to single precision and back, which
    costs more than both convolutions around them. Sums are in single precision in any case.
    """

    def forward(self, input: Tensor) -> Tensor:
        with torch.autocast(input.device.type, enabled=False):
            weight, bias = self.weight.to(input.dtype), self.bias.to(input.dtype)
            return F.group_norm(input, self.num_groups, weight, bias, self.eps)


class ResidualBlock(nn.Module):
    """Two normalised convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, groups: int) -> None:
        super().__init__()
        self.norm1 = norm(inputs, groups)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm2 = norm(outputs, groups)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        if inputs != outputs:
            self.nin_shortcut = nn.Conv2d(inputs, outputs, 1)
        self.widens = inputs != outputs

    def forward(self, values: Tensor) -> Tensor:
        inner = self.conv1(F.silu(self.norm1(values)))
        inner = self.conv2(F.silu(self.norm2(inner)))
        shortcut = self.nin_shortcut(values) if self.widens else values
        return torch.as_tensor(inner + shortcut)


class Attention(nn.Module):
    """Every place looks at every other place, with one head."""

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.norm = norm(channels, groups)
        self.q = nn.Conv2d(channels, channels, 1)
        self.k = nn.Conv2d(channels, channels, 1)
        self.v = nn.Conv2d(channels, channels, 1)
        self.proj_out = nn.Conv2d(channels, channels, 1)

    def forward(self, values: Tensor) -> Tensor:
        normed = self.norm(values)
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

    def __init__(self, widths: list[int], groups: int, *, attends: bool) -> None:
        super().__init__()
        pairs = list(pairwise(widths))
        self.block = nn.ModuleList(ResidualBlock(a, b, groups) for a, b in pairs)
        self.attn = nn.ModuleList(Attention(b, groups) for _, b in pairs if attends)
        # Replaced by the coder where the level is not its last.
        self.downsample: nn.Module = nn.Identity()
        self.upsample: nn.Module = nn.Identity()

    def forward(self, values: Tensor) -> Tensor:
        for index, block in enumerate(self.block):
            values = block(values)
            if len(self.attn):
                values = self.attn[index](values)
        return values


class Middle(nn.Module):
    """The blocks at the lowest resolution, around one attention."""

    def __init__(self, channels: int, groups: int, *, attends: bool) -> None:
        super().__init__()
        self.block_1 = ResidualBlock(channels, channels, groups)
        self.attn_1 = Attention(channels, groups) if attends else nn.Identity()
        self.block_2 = ResidualBlock(channels, channels, groups)

    def forward(self, values: Tensor) -> Tensor:
        return torch.as_tensor(self.block_2(self.attn_1(self.block_1(values))))
