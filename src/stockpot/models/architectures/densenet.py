"""Densely connected networks for small pictures (arXiv:1608.06993).

`new: densenet40` has 40 layers, each of which adds 12 channels to all that came before it: 1.0
million weights. With `bottleneck: true` a 1 x 1 convolution of four times as many channels comes
first; `compression` is the share of channels that stay between two stages. The ImageNet-C paper's
has `growth_rate: 24`, `bottleneck: true`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PretrainedConfig

from stockpot.models.architectures.convolutional import (
    ConvolutionalNetwork,
    check_depth,
    check_positive,
    in_order,
)

MODEL_TYPE = "cifar_densenet"


class DenseNetConfig(PretrainedConfig):  # type: ignore[misc]
    """Layers, the channels that each adds, and what keeps their number small."""

    model_type: ClassVar[str] = MODEL_TYPE
    depth: int = 40
    growth_rate: int = 12
    bottleneck: bool = False
    compression: float = 1.0
    dropout: float = 0.0
    stem_stride: int = 1

    def __init__(
        self,
        depth: int = 40,
        growth_rate: int = 12,
        bottleneck: bool = False,
        compression: float = 1.0,
        dropout: float = 0.0,
        stem_stride: int = 1,
        **settings: Any,
    ) -> None:
        check_depth(depth, 6 if bottleneck else 3, 4)
        check_positive(growth_rate=growth_rate, stem_stride=stem_stride)
        if not 0 < compression <= 1:
            raise ValueError(f"compression: expected above 0, up to 1, got {compression}")
        super().__init__(**settings)
        self.depth = depth
        self.growth_rate = growth_rate
        self.bottleneck = bottleneck
        self.compression = compression
        self.dropout = dropout
        self.stem_stride = stem_stride


class _Layer(nn.Module):
    """Norm, ReLU and a 3 x 3 convolution, whose channels are added to those there are."""

    def __init__(self, before: int, growth: int, dropout: float) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(before)
        self.conv = nn.Conv2d(before, growth, 3, padding=1, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, maps: Tensor) -> Tensor:
        return torch.cat([maps, self.dropout(self.conv(F.relu(self.bn(maps))))], dim=1)


class _Bottleneck(nn.Module):
    """The same behind a 1 x 1 convolution with norm and ReLU of its own."""

    def __init__(self, before: int, growth: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(before)
        self.conv1 = nn.Conv2d(before, 4 * growth, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, maps: Tensor) -> Tensor:
        few = self.dropout(self.conv1(F.relu(self.bn1(maps))))
        return torch.cat([maps, self.dropout(self.conv2(F.relu(self.bn2(few))))], dim=1)


class _Transition(nn.Module):
    """Between two stages: a 1 x 1 convolution, and half the side."""

    def __init__(self, before: int, after: int, dropout: float) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(before)
        self.conv = nn.Conv2d(before, after, 1, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, maps: Tensor) -> Tensor:
        return F.avg_pool2d(self.dropout(self.conv(F.relu(self.bn(maps)))), 2)


class DenseNetForImageClassification(ConvolutionalNetwork):
    """One convolution, three dense stages with transitions between them, and the head."""

    config_class = DenseNetConfig

    def __init__(self, config: DenseNetConfig) -> None:
        super().__init__(config)
        growth, dropout = config.growth_rate, config.dropout
        layer = _Bottleneck if config.bottleneck else _Layer
        count = check_depth(config.depth, 6 if config.bottleneck else 3, 4)
        width = 2 * growth if config.bottleneck else 16  # as published for each kind
        self.conv = nn.Conv2d(3, width, 3, stride=config.stem_stride, padding=1, bias=False)
        for number in (1, 2, 3):
            parts = [layer(width + k * growth, growth, dropout) for k in range(count)]
            dense = in_order("block", list(parts))
            width += count * growth
            if number < 3:
                fewer = int(width * config.compression)
                dense.add_module("transition", _Transition(width, fewer, dropout))
                width = fewer
            self.add_module(f"stage{number}", dense)
        self.bn = nn.BatchNorm2d(width)
        self.fc = nn.Linear(width, config.num_labels)
        self.post_init()

    def maps(self, pixels: Tensor) -> Tensor:
        # A copy, because two layers read what the first convolution gives: a norm folded into that
        # convolution would change it for the other one too.
        first = self.conv(pixels).clone()
        seen: Tensor = self.stage3(self.stage2(self.stage1(first)))
        return F.relu(self.bn(seen))
