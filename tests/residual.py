"""A residual network of a few units, with torchvision's names, all of whose units are awake."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pico import make_classifier
from stockpot.models.classifier import Classifier
from stockpot.pool.batch_norm import recompute_batch_norm


class Block(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        stride = 1 if before == after else 2
        self.conv1 = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        if stride > 1:
            self.downsample = nn.Sequential(
                nn.Conv2d(before, after, 1, stride=stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, maps: Tensor) -> Tensor:
        change = self.bn2(self.conv2(self.bn1(self.conv1(maps)).relu()))
        kept = self.downsample(maps) if hasattr(self, "downsample") else maps
        return (change + kept).relu()


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(6)
        self.layer1 = nn.Sequential(Block(6, 6))
        self.layer2 = nn.Sequential(Block(6, 8))
        self.fc = nn.Linear(8, 4)

    def forward(self, pixels: Tensor) -> Tensor:
        maps = self.layer2(self.layer1(self.bn1(self.conv1(pixels)).relu()))
        return self.fc(maps.mean(dim=(2, 3)))


def residual_model(seed: int, pixels: Tensor) -> Classifier:
    """A network whose norms fit the images, so that every unit moves on them."""
    draw = torch.Generator().manual_seed(seed)
    network = Residual()
    for name, value in network.named_parameters():
        noise = torch.randn(value.shape, generator=draw)
        if value.ndim > 1:
            value.data = noise * (2 / value[0].numel()) ** 0.5
        else:
            value.data = 1 + 0.2 * noise if name.endswith("weight") else 0.4 + 0.3 * noise
    recompute_batch_norm(network, [pixels])
    return make_classifier(network.eval(), size=8)
