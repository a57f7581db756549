"""What the convolutional networks for small pictures share: their start, their head, their stages.

Parts are named as in the code of the ImageNet-C paper (`conv`, `stage1.block1.conv1`, ..., `fc`),
so that one's file fits the other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import ImageClassifierOutputWithNoAttention


class ConvolutionalNetwork(PreTrainedModel):  # type: ignore[misc]
    """Feature maps, their mean over places, and a linear head `fc`."""

    main_input_name = "pixel_values"
    fc: nn.Linear

    def maps(self, pixels: Tensor) -> Tensor:
        """The feature maps that the head reads."""
        raise NotImplementedError

    def forward(self, pixel_values: Tensor, **_: Any) -> ImageClassifierOutputWithNoAttention:
        """Logits of normalised pixels."""
        seen = F.adaptive_avg_pool2d(self.maps(pixel_values), 1).flatten(1)
        return ImageClassifierOutputWithNoAttention(logits=self.fc(seen))

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Linear):
            nn.init.kaiming_uniform_(module.weight, a=5**0.5)
            nn.init.zeros_(module.bias)
        else:
            super()._init_weights(module)


def stage(
    block: Callable[[int, int, int], nn.Module], count: int, before: int, after: int, stride: int
) -> nn.Sequential:
    """Blocks in a row; the first changes the number of channels and the size."""
    blocks = [block(before, after, stride), *(block(after, after, 1) for _ in range(count - 1))]
    return in_order("block", blocks)


def in_order(name: str, parts: list[nn.Module]) -> nn.Sequential:
    """Parts in a row, numbered from 1."""
    return nn.Sequential(OrderedDict((f"{name}{k}", part) for k, part in enumerate(parts, 1)))


def projection(before: int, after: int, stride: int) -> nn.Sequential:
    """A 1 x 1 convolution with its norm where the number of channels changes, else nothing."""
    if before == after:
        return nn.Sequential()
    convolution = nn.Conv2d(before, after, 1, stride=stride, bias=False)
    return nn.Sequential(OrderedDict(conv=convolution, bn=nn.BatchNorm2d(after)))


def check_depth(depth: int, per: int, more: int) -> int:
    """Blocks in each stage of a network with so many layers, or a complaint."""
    count, rest = divmod(depth - more, per)
    if rest or count < 1:
        first = ", ".join(str(per * n + more) for n in (1, 2, 3))
        raise ValueError(f"depth: expected {first}, ... ({per} n + {more}), got {depth}")
    return count


def check_positive(**values: int) -> None:
    """Complain of a number of channels, paths or layers below 1."""
    for name, value in values.items():
        if value < 1:
            raise ValueError(f"{name}: expected at least 1, got {value}")
