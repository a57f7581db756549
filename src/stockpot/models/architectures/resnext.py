"""ResNeXt for small pictures: bottlenecks whose middle is many thin paths (arXiv:1611.05431).

`new: resnext29` has 29 layers with 8 paths of 64 channels (8x64d), 34.4 million weights;
`new: resnext29_4x16d` and the like have other paths. `channels` are those of the first layer; the
ImageNet-C paper's has `width: 32`, `channels: 32`.
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

MODEL_TYPE = "cifar_resnext"
_EXPANSION = 4
"""Channels of a stage's output for each of its bottleneck's, were there one path of `channels`."""


class ResNeXtConfig(PretrainedConfig):  # type: ignore[misc]
    """Layers, paths, the width of a path in the first stage, and channels of the first layer."""

    model_type: ClassVar[str] = MODEL_TYPE
    depth: int = 29
    cardinality: int = 8
    width: int = 64
    channels: int = 64
    stem_stride: int = 1

    def __init__(
        self,
        depth: int = 29,
        cardinality: int = 8,
        width: int = 64,
        channels: int = 64,
        stem_stride: int = 1,
        **settings: Any,
    ) -> None:
        check_depth(depth, 9, 2)
        check_positive(
            cardinality=cardinality, width=width, channels=channels, stem_stride=stem_stride
        )
        super().__init__(**settings)
        self.depth = depth
        self.cardinality = cardinality
        self.width = width
        self.channels = channels
        self.stem_stride = stem_stride


class _Block(nn.Module):
    """1 x 1, grouped 3 x 3 and 1 x 1 convolutions beside a straight way."""

    def __init__(self, paths: int, thinness: float, before: int, after: int, stride: int) -> None:
        super().__init__()
        middle = paths * int(after * thinness)
        self.conv1 = nn.Conv2d(before, middle, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(middle)
        self.conv2 = nn.Conv2d(
            middle, middle, 3, stride=stride, padding=1, groups=paths, bias=False
        )
        self.bn2 = nn.BatchNorm2d(middle)
        self.conv3 = nn.Conv2d(middle, after, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(after)
        self.shortcut = projection(before, after, stride)

    def forward(self, maps: Tensor) -> Tensor:
        thin = F.relu(self.bn1(self.conv1(maps)))
        thin = F.relu(self.bn2(self.conv2(thin)))
        return F.relu(self.bn3(self.conv3(thin)) + self.shortcut(maps))


class ResNeXtForImageClassification(ConvolutionalNetwork):
    """One convolution, three stages of blocks, and the head."""

    config_class = ResNeXtConfig

    def __init__(self, config: ResNeXtConfig) -> None:
        super().__init__(config)
        count, width = check_depth(config.depth, 9, 2), config.channels
        first, second, third = (_EXPANSION * width * times for times in (1, 2, 4))
        block = partial(_Block, config.cardinality, config.width / first)
        self.conv = nn.Conv2d(3, width, 3, stride=config.stem_stride, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.stage1 = stage(block, count, width, first, 1)
        self.stage2 = stage(block, count, first, second, 2)
        self.stage3 = stage(block, count, second, third, 2)
        self.fc = nn.Linear(third, config.num_labels)
        self.post_init()

    def maps(self, pixels: Tensor) -> Tensor:
        seen: Tensor = F.relu(self.bn(self.conv(pixels)))
        return self.stage3(self.stage2(self.stage1(seen)))  # type: ignore[no-any-return]
