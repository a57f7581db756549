"""The ResNets of 20, 32, 44, 56 and 110 layers for small pictures (arXiv:1512.03385, section 4.2).

`new: resnet20` has 0.27 million weights and `new: resnet56` 0.85. Where the number of channels
doubles the straight way skips every other place and fills the new channels with zeros, which takes
no weights; with `shortcut: projection` there is a 1 x 1 convolution, as in the ImageNet-C paper.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PretrainedConfig

from stockpot.models.architectures.convolutional import (
    ConvolutionalNetwork,
    check_depth,
    check_positive,
    projection,
    stage,
)

MODEL_TYPE = "cifar_resnet"


class CifarResNetConfig(PretrainedConfig):  # type: ignore[misc]
    """Layers, channels of the first stage, the straight way, and the stride of the first layer."""

    model_type: ClassVar[str] = MODEL_TYPE
    depth: int = 20
    channels: int = 16
    shortcut: str = "zeros"
    stem_stride: int = 1

    def __init__(
        self,
        depth: int = 20,
        channels: int = 16,
        shortcut: str = "zeros",
        stem_stride: int = 1,
        **settings: Any,
    ) -> None:
        check_depth(depth, 6, 2)
        check_positive(channels=channels, stem_stride=stem_stride)
        if shortcut not in ("zeros", "projection"):
            raise ValueError(f"shortcut: expected zeros or projection, got {shortcut!r}")
        super().__init__(**settings)
        self.depth = depth
        self.channels = channels
        self.shortcut = shortcut
        self.stem_stride = stem_stride


class _Zeros(nn.Module):
    """Every other place, and channels of zeros on both sides of those there are."""

    def __init__(self, more: int, stride: int) -> None:
        super().__init__()
        self.more, self.stride = more, stride

    def forward(self, maps: Tensor) -> Tensor:
        few = maps[:, :, :: self.stride, :: self.stride]
        below = self.more // 2
        return F.pad(few, (0, 0, 0, 0, below, self.more - below))


class _Block(nn.Module):
    def __init__(self, shortcut: str, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.shortcut = (
            _Zeros(after - before, stride)
            if shortcut == "zeros" and before != after
            else projection(before, after, stride)
        )

    def forward(self, maps: Tensor) -> Tensor:
        change = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(maps)))))
        return F.relu(change + self.shortcut(maps))


class CifarResNetForImageClassification(ConvolutionalNetwork):
    """One convolution, three stages of blocks, and the head."""

    config_class = CifarResNetConfig

    def __init__(self, config: CifarResNetConfig) -> None:
        super().__init__(config)
        count, width = check_depth(config.depth, 6, 2), config.channels
        block = partial(_Block, config.shortcut)
        self.conv = nn.Conv2d(3, width, 3, stride=config.stem_stride, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.stage1 = stage(block, count, width, width, 1)
        self.stage2 = stage(block, count, width, 2 * width, 2)
        self.stage3 = stage(block, count, 2 * width, 4 * width, 2)
        self.fc = nn.Linear(4 * width, config.num_labels)
        self.post_init()

    def maps(self, pixels: Tensor) -> Tensor:
        seen: Tensor = F.relu(self.bn(self.conv(pixels)))
        return self.stage3(self.stage2(self.stage1(seen)))  # type: ignore[no-any-return]
