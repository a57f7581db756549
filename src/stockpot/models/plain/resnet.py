"""ResNet (He et al., arXiv:1512.03385) as transformers has it, and ours for small pictures."""

from __future__ import annotations

from types import SimpleNamespace

from torch import Tensor, nn

from stockpot.models.plain.answer import Answer

USUAL = {
    "num_channels": 3,
    "embedding_size": 64,
    "hidden_sizes": [256, 512, 1024, 2048],
    "depths": [3, 4, 6, 3],
    "layer_type": "bottleneck",
    "downsample_in_first_stage": False,
    "downsample_in_bottleneck": False,
    "stem_stride": 1,
}
FIXED = {"hidden_act": "relu"}
_NARROWER = 4


class ConvLayer(nn.Module):
    """A convolution, its batch norm, and what bends it."""

    def __init__(
        self, before: int, after: int, kernel: int = 3, stride: int = 1, *, bends: bool = True
    ) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(
            before, after, kernel, stride=stride, padding=kernel // 2, bias=False
        )
        self.normalization = nn.BatchNorm2d(after)
        self.activation = nn.ReLU() if bends else nn.Identity()

    def forward(self, maps: Tensor) -> Tensor:
        result: Tensor = self.activation(self.normalization(self.convolution(maps)))
        return result


class ShortCut(nn.Module):
    """A 1 x 1 convolution around a block that changes the size."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(before, after, 1, stride=stride, bias=False)
        self.normalization = nn.BatchNorm2d(after)

    def forward(self, maps: Tensor) -> Tensor:
        result: Tensor = self.normalization(self.convolution(maps))
        return result


class Block(nn.Module):
    """Two 3 x 3 convolutions, or one between two of 1 x 1, added to what they read."""

    def __init__(self, config: SimpleNamespace, before: int, after: int, stride: int) -> None:
        super().__init__()
        changes = before != after or stride != 1
        self.shortcut = ShortCut(before, after, stride) if changes else nn.Identity()
        if config.layer_type == "bottleneck":
            narrow = after // _NARROWER
            first, second = (stride, 1) if config.downsample_in_bottleneck else (1, stride)
            self.layer = nn.Sequential(
                ConvLayer(before, narrow, 1, first),
                ConvLayer(narrow, narrow, 3, second),
                ConvLayer(narrow, after, 1, bends=False),
            )
        else:
            self.layer = nn.Sequential(
                ConvLayer(before, after, 3, stride), ConvLayer(after, after, bends=False)
            )
        self.activation = nn.ReLU()

    def forward(self, maps: Tensor) -> Tensor:
        changed = self.layer(maps)
        changed += self.shortcut(maps)
        result: Tensor = self.activation(changed)
        return result


class Stage(nn.Module):
    """Blocks of one width."""

    def __init__(
        self, config: SimpleNamespace, before: int, after: int, stride: int, depth: int
    ) -> None:
        super().__init__()
        first = Block(config, before, after, stride)
        if config.layer_type == "bottleneck" and config.downsample_in_bottleneck:
            config = SimpleNamespace(**{**vars(config), "downsample_in_bottleneck": False})
        rest = (Block(config, after, after, 1) for _ in range(depth - 1))
        self.layers = nn.Sequential(first, *rest)

    def forward(self, maps: Tensor) -> Tensor:
        result: Tensor = self.layers(maps)
        return result


class Encoder(nn.Module):
    """All stages; every one but the first halves the sides."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        widths = [config.embedding_size, *config.hidden_sizes]
        strides = [2 if config.downsample_in_first_stage else 1] + [2] * (len(widths) - 2)
        self.stages = nn.ModuleList(
            Stage(config, before, after, stride, depth)
            for before, after, stride, depth in zip(
                widths[:-1], widths[1:], strides, config.depths, strict=True
            )
        )

    def forward(self, maps: Tensor) -> Tensor:
        for stage in self.stages:
            maps = stage(maps)
        return maps


class Stem(nn.Module):
    """The first layer: for photographs it takes a quarter of the sides."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.grey = False
        self.embedder = ConvLayer(config.num_channels, config.embedding_size, 7, 2)
        self.pooler = nn.MaxPool2d(3, stride=2, padding=1)

    def forward(self, pixels: Tensor) -> Tensor:
        result: Tensor = self.pooler(self.embedder(pixels))
        return result


class SmallStem(nn.Module):
    """The first layer for small pictures (`models/small_resnet.py`)."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.grey = config.num_channels == 1
        self.embedder = ConvLayer(config.num_channels, config.embedding_size, 3, config.stem_stride)

    def forward(self, pixels: Tensor) -> Tensor:
        result: Tensor = self.embedder(pixels.mean(dim=1, keepdim=True) if self.grey else pixels)
        return result


class Body(nn.Module):
    """Everything before the head."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        small = config.model_type == "small_resnet"
        self.embedder = SmallStem(config) if small else Stem(config)
        self.encoder = Encoder(config)
        self.pooler = nn.AdaptiveAvgPool2d((1, 1))

    def forward(self, pixels: Tensor) -> Tensor:
        result: Tensor = self.pooler(self.encoder(self.embedder(pixels)))
        return result


class ResNet(nn.Module):
    """A ResNet with its head."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.resnet = Body(config)
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Linear(config.hidden_sizes[-1], config.num_labels)
        )

    def forward(self, pixel_values: Tensor) -> Answer:
        return Answer(self.classifier(self.resnet(pixel_values)))
