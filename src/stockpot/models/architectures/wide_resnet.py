"""Wide ResNets for small pictures (arXiv:1605.07146), as an architecture of transformers.

`new: wrn-28-10` is depth 28 and width 10; `new: wide_resnet` takes `depth` and `widen_factor`. Norm
and ReLU come before each convolution. The weights have the names that RobustBench's models of this
kind have, so that one's file fits the other.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PretrainedConfig

from stockpot.models.architectures.convolutional import (
    ConvolutionalNetwork,
    check_depth,
    check_positive,
)

MODEL_TYPE = "wide_resnet"


class WideResNetConfig(PretrainedConfig):  # type: ignore[misc]
    """Layers with weights on the longest way, and the factor of the usual numbers of channels."""

    model_type: ClassVar[str] = MODEL_TYPE
    depth: int = 28
    widen_factor: int = 10
    dropout: float = 0.0

    def __init__(
        self, depth: int = 28, widen_factor: int = 10, dropout: float = 0.0, **settings: Any
    ) -> None:
        check_depth(depth, 6, 4)
        check_positive(widen_factor=widen_factor)
        super().__init__(**settings)
        self.depth = depth
        self.widen_factor = widen_factor
        self.dropout = dropout


class _Block(nn.Module):
    """Two convolutions, each after its norm, beside a way straight through."""

    def __init__(self, before: int, after: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(before)
        self.conv1 = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.convShortcut = (
            nn.Conv2d(before, after, 1, stride=stride, bias=False) if before != after else None
        )

    def forward(self, maps: Tensor) -> Tensor:
        active = F.relu(self.bn1(maps))
        # Where the number of channels changes, the straight way begins after the norm.
        straight = maps if self.convShortcut is None else self.convShortcut(active)
        change = self.conv2(self.dropout(F.relu(self.bn2(self.conv1(active)))))
        sum_: Tensor = straight + change
        return sum_


class _Stage(nn.Module):
    def __init__(self, count: int, before: int, after: int, stride: int, dropout: float) -> None:
        super().__init__()
        first = _Block(before, after, stride, dropout)
        rest = [_Block(after, after, 1, dropout) for _ in range(count - 1)]
        self.layer = nn.Sequential(first, *rest)

    def forward(self, maps: Tensor) -> Tensor:
        seen: Tensor = self.layer(maps)
        return seen


class WideResNetForImageClassification(ConvolutionalNetwork):
    """One convolution, three stages of blocks, the mean over places, and a linear head."""

    config_class = WideResNetConfig

    def __init__(self, config: WideResNetConfig) -> None:
        super().__init__(config)
        count, dropout = check_depth(config.depth, 6, 4), config.dropout
        first, second, third = (width * config.widen_factor for width in (16, 32, 64))
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.block1 = _Stage(count, 16, first, 1, dropout)
        self.block2 = _Stage(count, first, second, 2, dropout)
        self.block3 = _Stage(count, second, third, 2, dropout)
        self.bn1 = nn.BatchNorm2d(third)
        self.fc = nn.Linear(third, config.num_labels)
        self.post_init()

    def maps(self, pixels: Tensor) -> Tensor:
        """The maps of the last stage, after norm and ReLU."""
        seen = self.block3(self.block2(self.block1(self.conv1(pixels))))
        return F.relu(self.bn1(seen))
