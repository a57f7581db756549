"""Tiny datasets and models with known answers, shared by the tests."""

from __future__ import annotations

import torch
from torch import nn

from stockpot.datasets.dataset import Dataset, TensorImages, pixel_fingerprint
from stockpot.models.classifier import Classifier, Origin
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize

CLASSES = ("ant", "bee", "cat", "dog")


def make_dataset(n: int = 40, size: int = 16, classes: tuple[str, ...] = CLASSES) -> Dataset:
    """Random pictures whose first pixel row encodes the label, so that a rule can be perfect."""
    generator = torch.Generator().manual_seed(7)
    labels = torch.arange(n) % len(classes)
    pixels = torch.randint(0, 256, (n, 3, size, size), generator=generator).to(torch.uint8)
    pixels[:, :, 0, :] = (labels * 40).to(torch.uint8)[:, None, None]
    fingerprint = pixel_fingerprint(pixels, labels, classes)
    names = [classes[label] for label in labels.tolist()]
    columns = {
        "family": tuple("new" if row % 3 == 0 else "old" for row in range(n)),
        "shape": tuple(names),
        "texture": tuple(classes[(label + 1) % len(classes)] for label in labels.tolist()),
    }
    images = TensorImages(pixels)
    return Dataset("toy", "test", images, labels, classes, fingerprint, columns=columns)


class ReadsLabel(nn.Module):
    """Right about every image of `make_dataset`: reads the encoded label."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.levels = nn.Parameter(torch.arange(classes) * 40 / 255)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        seen = pixels[:, :, 0, :].mean(dim=(1, 2))
        return -1000 * (seen[:, None] - self.levels).abs()


def make_classifier(
    network: nn.Module, classes: tuple[str, ...] = CLASSES, size: int = 16
) -> Classifier:
    side = ImageSize(size, size)
    plain = Preprocess(side, side, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    return Classifier(network, plain, classes, Origin("toy-model", "Toy", "0" * 64))
