"""Wide ResNets for small pictures (arXiv:1605.07146), as an architecture of transformers.

`new: wrn-28-10` is depth 28 and width 10; `new: wide_resnet` takes `depth` and `widen_factor`. Norm
and ReLU come before each convolution. The weights have the names that RobustBench's models of this
kind have, so that one's file fits the other.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import ImageClassifierOutputWithNoAttention

MODEL_TYPE = "wide_resnet"
_SHORT = re.compile(r"(?:wrn|wide_resnet)[-_](\d+)[-_](\d+)")


def by_short_name(name: str) -> dict[str, int] | None:
    """Depth and width of `wrn-28-10` and the like; none for any other name."""
    found = _SHORT.fullmatch(name.lower())
    return {"depth": int(found[1]), "widen_factor": int(found[2])} if found else None


class WideResNetConfig(PretrainedConfig):  # type: ignore[misc]
    """Layers with weights on the longest way, and the factor of the usual numbers of channels."""

    model_type: ClassVar[str] = MODEL_TYPE
    depth: int = 28
    widen_factor: int = 10
    dropout: float = 0.0

    def __init__(
        self, depth: int = 28, widen_factor: int = 10, dropout: float = 0.0, **settings: Any
    ) -> None:
        if depth < 10 or (depth - 4) % 6:
            raise ValueError(f"depth: expected 10, 16, 22, 28, ... (6 n + 4), got {depth}")
        if widen_factor < 1:
            raise ValueError(f"widen_factor: expected at least 1, got {widen_factor}")
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


class WideResNetForImageClassification(PreTrainedModel):  # type: ignore[misc]
    """One convolution, three stages of blocks, the mean over places, and a linear head."""

    config_class = WideResNetConfig
    main_input_name = "pixel_values"

    def __init__(self, config: WideResNetConfig) -> None:
        super().__init__(config)
        count, dropout = (config.depth - 4) // 6, config.dropout
        first, second, third = (width * config.widen_factor for width in (16, 32, 64))
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.block1 = _Stage(count, 16, first, 1, dropout)
        self.block2 = _Stage(count, first, second, 2, dropout)
        self.block3 = _Stage(count, second, third, 2, dropout)
        self.bn1 = nn.BatchNorm2d(third)
        self.fc = nn.Linear(third, config.num_labels)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.kaiming_uniform_(module.weight, a=5**0.5)
            nn.init.zeros_(module.bias)
        else:
            super()._init_weights(module)

    def forward(self, pixel_values: Tensor, **_: Any) -> ImageClassifierOutputWithNoAttention:
        """Logits of normalised pixels."""
        maps = self.block3(self.block2(self.block1(self.conv1(pixel_values))))
        seen = F.adaptive_avg_pool2d(F.relu(self.bn1(maps)), 1).flatten(1)
        return ImageClassifierOutputWithNoAttention(logits=self.fc(seen))
