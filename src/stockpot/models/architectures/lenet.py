"""LeNet for digits and other small drawings, as an architecture of transformers (`new: lenet`).

Two convolutions of 5 x 5 with pooling and three linear layers, as in LeCun et al. (1998), with
ReLU and max-pooling in place of the original's sigmoids and trainable averages.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import ImageClassifierOutputWithNoAttention

MODEL_TYPE = "lenet"


class LeNetConfig(PretrainedConfig):  # type: ignore[misc]
    """The side of the pictures and the widths of the layers."""

    model_type: ClassVar[str] = MODEL_TYPE
    image_size: int = 28
    num_channels: int = 3
    filters: Any = (6, 16)
    hidden_sizes: Any = (120, 84)

    def __init__(
        self,
        image_size: int = 28,
        num_channels: int = 3,
        filters: tuple[int, ...] = (6, 16),
        hidden_sizes: tuple[int, ...] = (120, 84),
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.image_size = image_size
        self.num_channels = num_channels
        self.filters = list(filters)
        self.hidden_sizes = list(hidden_sizes)


class LeNetForImageClassification(PreTrainedModel):  # type: ignore[misc]
    """Convolutions, pooling, and a stack of linear layers."""

    config_class = LeNetConfig
    main_input_name = "pixel_values"

    def __init__(self, config: LeNetConfig) -> None:
        super().__init__(config)
        first, second = config.filters
        self.conv1 = nn.Conv2d(config.num_channels, first, 5, padding=2)
        self.conv2 = nn.Conv2d(first, second, 5)
        side = (config.image_size // 2 - 4) // 2
        widths = [second * side * side, *config.hidden_sizes]
        pairs = pairwise(widths)
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairs)
        self.classifier = nn.Linear(widths[-1], config.num_labels)
        self.post_init()

    def forward(self, pixel_values: Tensor, **_: Any) -> ImageClassifierOutputWithNoAttention:
        """Logits of normalised pixels; a network of one channel sees the channels' mean."""
        if self.config.num_channels == 1:
            pixel_values = pixel_values.mean(dim=1, keepdim=True)
        maps = F.max_pool2d(F.relu(self.conv1(pixel_values)), 2)
        values = torch.flatten(F.max_pool2d(F.relu(self.conv2(maps)), 2), 1)
        for layer in self.hidden:
            values = F.relu(layer(values))
        return ImageClassifierOutputWithNoAttention(logits=self.classifier(values))
