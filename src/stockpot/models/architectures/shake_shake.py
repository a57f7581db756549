"""Shake-Shake networks: two branches, mixed at random while training (arXiv:1705.07485).

`new: shake_shake26_2x32d` has 26 layers with two branches of 32 channels, 2.9 million weights;
`new: shake_shake26_2x96d` has 26.2 million. In training each image's branches are added with shares
alpha and 1 - alpha, drawn anew in every block, and gradients go back with other shares, beta and
1 - beta (the published Shake-Shake-Image); in evaluation both have a half. The first layer has 16
channels as published; the ImageNet-C paper's code has those of a branch (`stem_channels`).
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PretrainedConfig

from stockpot.models.architectures.convolutional import (
    ConvolutionalNetwork,
    check_depth,
    check_positive,
    stage,
)

MODEL_TYPE = "shake_shake"


class ShakeShakeConfig(PretrainedConfig):  # type: ignore[misc]
    """Layers, channels of a branch in the first stage, whether training shakes, the first layer."""

    model_type: ClassVar[str] = MODEL_TYPE
    depth: int = 26
    channels: int = 32
    shake: bool = True
    stem_channels: int = 16
    stem_stride: int = 1

    def __init__(
        self,
        depth: int = 26,
        channels: int = 32,
        shake: bool = True,
        stem_channels: int = 16,
        stem_stride: int = 1,
        **settings: Any,
    ) -> None:
        check_depth(depth, 6, 2)
        check_positive(channels=channels, stem_channels=stem_channels, stem_stride=stem_stride)
        if channels % 2:
            raise ValueError(f"channels: expected an even number, got {channels}")
        super().__init__(**settings)
        self.depth = depth
        self.channels = channels
        self.shake = shake
        self.stem_channels = stem_channels
        self.stem_stride = stem_stride


def shaken(first: Tensor, second: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    """`alpha` of the first and the rest of the second; gradients are shared by `beta`."""
    values = alpha * first + (1 - alpha) * second
    slopes = beta * first + (1 - beta) * second
    # The second two terms cancel in value and leave only the gradient.
    return values.detach() + slopes - slopes.detach()


class _Branch(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)

    def forward(self, maps: Tensor) -> Tensor:
        change: Tensor = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(F.relu(maps))))))
        return change


class _Down(nn.Module):
    """The straight way where channels change: the maps and the maps moved by a place, projected."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.conv1 = nn.Conv2d(before, after // 2, 1, bias=False)
        self.conv2 = nn.Conv2d(before, after // 2, 1, bias=False)
        self.bn = nn.BatchNorm2d(after)

    def forward(self, maps: Tensor) -> Tensor:
        active = F.relu(maps)
        moved = F.pad(active[:, :, 1:, 1:], (0, 1, 0, 1))
        step = (..., slice(None, None, self.stride), slice(None, None, self.stride))
        halves = [self.conv1(active[step]), self.conv2(moved[step])]
        return self.bn(torch.cat(halves, dim=1))  # type: ignore[no-any-return]


class _Block(nn.Module):
    def __init__(self, shake: bool, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.shake = shake
        self.residual_path1 = _Branch(before, after, stride)
        self.residual_path2 = _Branch(before, after, stride)
        self.shortcut = nn.Sequential()
        if before != after:
            self.shortcut.add_module("downsample", _Down(before, after, stride))

    def forward(self, maps: Tensor) -> Tensor:
        first, second = self.residual_path1(maps), self.residual_path2(maps)
        if self.training and self.shake:
            # Drawn on the CPU, so that a seed means the same on every device.
            alpha, beta = torch.rand(2, len(maps), 1, 1, 1).to(maps)
            change = shaken(first, second, alpha, beta)
        else:
            change = (first + second) / 2
        sum_: Tensor = self.shortcut(maps) + change
        return sum_


class ShakeShakeForImageClassification(ConvolutionalNetwork):
    """One convolution, three stages of two-branched blocks, and the head."""

    config_class = ShakeShakeConfig

    def __init__(self, config: ShakeShakeConfig) -> None:
        super().__init__(config)
        count, width = check_depth(config.depth, 6, 2), config.channels
        block = partial(_Block, config.shake)
        first = config.stem_channels
        self.conv = nn.Conv2d(3, first, 3, stride=config.stem_stride, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(first)
        self.stage1 = stage(block, count, first, width, 1)
        self.stage2 = stage(block, count, width, 2 * width, 2)
        self.stage3 = stage(block, count, 2 * width, 4 * width, 2)
        self.fc = nn.Linear(4 * width, config.num_labels)
        self.post_init()

    def maps(self, pixels: Tensor) -> Tensor:
        seen: Tensor = F.relu(self.bn(self.conv(pixels)))
        return F.relu(self.stage3(self.stage2(self.stage1(seen))))
