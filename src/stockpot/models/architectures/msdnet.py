"""A multi-scale dense network for small pictures (after arXiv:1703.09844).

Every layer has maps at three sizes. It adds channels to those of each size: made from that size,
and half of them from the next finer one. After each third of the layers the finest size is dropped,
and the head reads the coarsest. The published network answers early too, with a head after every
few layers; this one has the last head alone, and keeps all channels where a size is dropped.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig

from stockpot.models.architectures.convolutional import ConvolutionalNetwork, check_positive

MODEL_TYPE = "msdnet"
_SCALES = (1, 2, 4)
"""How many times the finest size's channels each size has, and how wide its bottlenecks are."""
_HEAD = 128


class MSDNetConfig(PretrainedConfig):  # type: ignore[misc]
    """Layers, the channels of the first, and those that each further layer adds."""

    model_type: ClassVar[str] = MODEL_TYPE
    layers: int = 10
    channels: int = 32
    growth_rate: int = 12
    stem_stride: int = 1

    def __init__(
        self,
        layers: int = 10,
        channels: int = 32,
        growth_rate: int = 12,
        stem_stride: int = 1,
        **settings: Any,
    ) -> None:
        check_positive(layers=layers, channels=channels, stem_stride=stem_stride)
        if growth_rate < 2 or growth_rate % 2:
            raise ValueError(f"growth_rate: expected an even number from 2, got {growth_rate}")
        super().__init__(**settings)
        self.layers = layers
        self.channels = channels
        self.growth_rate = growth_rate
        self.stem_stride = stem_stride


def _convolved(before: int, after: int, size: int, stride: int = 1) -> nn.Sequential:
    layer = nn.Conv2d(before, after, size, stride=stride, padding=size // 2)
    return nn.Sequential(layer, nn.BatchNorm2d(after), nn.ReLU())


def _narrow(before: int, after: int, factor: int, stride: int) -> nn.Sequential:
    """A bottleneck of 1 x 1, and 3 x 3."""
    middle = min(before, factor * after)
    return nn.Sequential(*_convolved(before, middle, 1), *_convolved(middle, after, 3, stride))


class _Layer(nn.Module):
    """New channels at each size that is still there."""

    def __init__(self, width: int, growth: int, given: int, kept: int) -> None:
        super().__init__()
        self.drop = given - kept
        self.scales = nn.ModuleList()
        first = len(_SCALES) - kept
        for scale in range(first, len(_SCALES)):
            here, more = _SCALES[scale], growth * _SCALES[scale]
            if scale == first and not self.drop:  # there is no finer size
                parts = [_narrow(width * here, more, here, 1)]
            else:
                finer = _SCALES[scale - 1]
                parts = [
                    _narrow(width * finer, more // 2, finer, 2),
                    _narrow(width * here, more // 2, here, 1),
                ]
            self.scales.append(nn.ModuleList(parts))

    def forward(self, maps: list[Tensor]) -> list[Tensor]:
        grown = []
        parts: Any
        for place, parts in enumerate(self.scales, self.drop):
            sources = maps[place - 1 : place + 1] if len(parts) == 2 else [maps[place]]
            new = [part(source) for part, source in zip(parts, sources, strict=True)]
            grown.append(torch.cat([maps[place], *new], dim=1))
        return grown


class MSDNetForImageClassification(ConvolutionalNetwork):
    """A pyramid of convolutions, layers over all its sizes, and a head on the coarsest."""

    config_class = MSDNetConfig

    def __init__(self, config: MSDNetConfig) -> None:
        super().__init__(config)
        width, growth = config.channels, config.growth_rate
        widths = [3, *(width * scale for scale in _SCALES)]
        strides = [config.stem_stride, *[2] * (len(_SCALES) - 1)]
        self.pyramid = nn.ModuleList(
            _convolved(before, after, 3, stride)
            for (before, after), stride in zip(pairwise(widths), strides, strict=True)
        )
        third = -(-config.layers // len(_SCALES))
        kept = [len(_SCALES) - layer // third for layer in range(config.layers)]
        self.layers = nn.ModuleList(
            _Layer(width + number * growth, growth, given, left)
            for number, (given, left) in enumerate(pairwise([len(_SCALES), *kept]))
        )
        last = (width + config.layers * growth) * _SCALES[-1]
        self.end = nn.Sequential(_convolved(last, _HEAD, 3, 2), _convolved(_HEAD, _HEAD, 3, 2))
        self.fc = nn.Linear(_HEAD, config.num_labels)
        self.post_init()

    def maps(self, pixels: Tensor) -> Tensor:
        """The coarsest maps, made smaller still."""
        pyramid = [pixels]
        for part in self.pyramid:
            pyramid.append(part(pyramid[-1]))
        scales = pyramid[1:]
        for layer in self.layers:
            scales = layer(scales)
        coarse: Tensor = self.end(scales[-1])
        return coarse
