"""The encoder from pixels to latents and the decoder back, built from one description."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stockpot.models.autoencoder.blocks import (
    Activation,
    Downsample,
    Level,
    Middle,
    Style,
    Upsample,
    norm,
)


@dataclass(frozen=True)
class Architecture:
    """What decides the shape of every tensor of an autoencoder.

    `codes` is the size of the codebook; 0 stands for a Gaussian latent, whose encoder gives means
    and log-variances. `attention` names the levels with attention, 0 being the full resolution.
    `spatial` decoders normalise by the latent cells (MoVQ); `gumbel` codes are chosen by a layer of
    their own and not by distance.
    """

    channels: int = 40
    multipliers: tuple[int, ...] = (1, 2, 2)
    blocks: int = 1
    latent_channels: int = 16
    code_size: int = 8
    codes: int = 1024
    groups: int = 8
    attention: tuple[int, ...] = ()
    middle_attention: bool = True
    colours: int = 3
    activation: Activation = "silu"
    spatial: bool = False
    gumbel: bool = False

    @property
    def stride(self) -> int:
        """How many pixels a side of one latent cell spans."""
        return 1 << (len(self.multipliers) - 1)

    @property
    def widths(self) -> list[int]:
        """The channels of each level, full resolution first."""
        return [self.channels * factor for factor in self.multipliers]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


class Encoder(nn.Module):
    """Pixels in [-1, 1] to latents at a fraction of the side."""

    def __init__(self, shape: Architecture) -> None:
        super().__init__()
        widths, style = shape.widths, Style(shape.groups, shape.activation)
        self.conv_in = nn.Conv2d(shape.colours, shape.channels, 3, padding=1)
        self.down = nn.ModuleList()
        inputs = shape.channels
        for index, width in enumerate(widths):
            level = Level(
                [inputs] + [width] * shape.blocks, style, attends=index in shape.attention
            )
            if index + 1 < len(widths):
                level.downsample = Downsample(width)
            self.down.append(level)
            inputs = width
        self.mid = Middle(inputs, style, attends=shape.middle_attention)
        self.norm_out = norm(inputs, style)
        outputs = shape.latent_channels * (1 if shape.codes else 2)
        self.conv_out = nn.Conv2d(inputs, outputs, 3, padding=1)

    def forward(self, pixels: Tensor) -> Tensor:
        values = self.conv_in(pixels)
        for level in self.down:
            values = level.downsample(level(values))  # type: ignore[operator]
        return torch.as_tensor(self.conv_out(F.silu(self.norm_out(self.mid(values)))))


class Decoder(nn.Module):
    """Latents back to pixels in [-1, 1]; one block more per level than the encoder."""

    def __init__(self, shape: Architecture) -> None:
        super().__init__()
        widths = shape.widths
        style = Style(shape.groups, shape.activation, shape.code_size if shape.spatial else 0)
        inputs = widths[-1]
        self.conv_in = nn.Conv2d(shape.latent_channels, inputs, 3, padding=1)
        self.mid = Middle(inputs, style, attends=shape.middle_attention)
        levels: list[Level] = []
        for index, width in reversed(list(enumerate(widths))):
            level = Level(
                [inputs] + [width] * (shape.blocks + 1), style, attends=index in shape.attention
            )
            if index:
                level.upsample = Upsample(width)
            levels.append(level)
            inputs = width
        self.up = nn.ModuleList(reversed(levels))  # counted from the full resolution, as published
        self.norm_out = norm(inputs, style)
        self.conv_out = nn.Conv2d(inputs, shape.colours, 3, padding=1)

    def forward(self, latents: Tensor, cells: Tensor) -> Tensor:
        """`cells` are the latents as they were chosen, which spatial norms look at."""
        values = self.mid(self.conv_in(latents), cells)
        for level in reversed(self.up):
            values = level.upsample(level(values, cells))  # type: ignore[operator]
        return torch.as_tensor(self.conv_out(F.silu(self.norm_out(values, cells))))
