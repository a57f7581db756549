"""A residual network for small pictures, as an architecture of transformers (`new: small_resnet`).

The usual ResNet begins with a 7 x 7 convolution of stride 2 and a pooling of stride 2, which leaves
8 x 8 places of a 32 px picture. Here the first layer is a 3 x 3 convolution and nothing is pooled;
the rest is transformers' own ResNet, and so are the names of its weights.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn
from transformers import (
    ResNetConfig,
    ResNetForImageClassification,
)
from transformers.models.resnet.modeling_resnet import ResNetConvLayer

MODEL_TYPE = "small_resnet"


class SmallResNetConfig(ResNetConfig):  # type: ignore[misc]
    """A ResNet's configuration and the stride of its first layer (1 for 32 px, 2 for 64 px)."""

    model_type: ClassVar[str] = MODEL_TYPE
    stem_stride: int = 1

    def __init__(self, stem_stride: int = 1, **settings: Any) -> None:
        super().__init__(**settings)
        self.stem_stride = stem_stride


class SmallStem(nn.Module):
    """One 3 x 3 convolution with its batch norm."""

    def __init__(self, config: SmallResNetConfig) -> None:
        super().__init__()
        self.grey = config.num_channels == 1
        self.embedder = ResNetConvLayer(
            config.num_channels,
            config.embedding_size,
            kernel_size=3,
            stride=config.stem_stride,
            activation=config.hidden_act,
        )

    def forward(self, pixel_values: Tensor) -> Tensor:
        """From normalised pixels to feature maps; with one channel, of the channels' mean."""
        if self.grey:
            pixel_values = pixel_values.mean(dim=1, keepdim=True)
        maps: Tensor = self.embedder(pixel_values)
        return maps


class SmallResNetForImageClassification(ResNetForImageClassification):  # type: ignore[misc]
    """transformers' ResNet with a stem for small pictures."""

    config_class = SmallResNetConfig

    def __init__(self, config: SmallResNetConfig) -> None:
        super().__init__(config)
        self.resnet.embedder = SmallStem(config)
        self.resnet.embedder.apply(self._init_weights)
