"""Small families of models whose soups have known answers."""

from __future__ import annotations

import torch
from torch import nn

from pico import CLASSES, make_classifier
from stockpot.datasets.dataset import Dataset, TensorImages, pixel_fingerprint
from stockpot.models.classifier import Classifier

SIDE = 8


def linear_member(seed: int) -> Classifier:
    """A linear model: logits are linear in the weights."""
    generator = torch.Generator().manual_seed(seed)
    head = nn.Linear(3 * SIDE * SIDE, len(CLASSES))
    for parameter in head.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) / 10
    return make_classifier(nn.Sequential(nn.Flatten(), head), size=SIDE)


def norm_member(seed: int, near: float = 0.3) -> Classifier:
    """A small network with BatchNorm, near a common ancestor."""
    ancestor, change = (torch.Generator().manual_seed(s) for s in (0, seed))
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4)
    )
    for parameter in network.parameters():
        noise = torch.randn(parameter.shape, generator=change) * near
        parameter.data = torch.randn(parameter.shape, generator=ancestor) / 3 + noise / 3
    norm = network[1]
    assert isinstance(norm, nn.BatchNorm2d)
    norm.running_var.copy_(0.05 + torch.rand(4, generator=change))
    norm.num_batches_tracked.fill_(17)
    return make_classifier(network, size=SIDE)


def toy_images(n: int, teacher: Classifier | None = None, noise: float = 0.0) -> Dataset:
    """Random pictures labelled by a teacher, some of them wrongly."""
    generator = torch.Generator().manual_seed(11)
    pixels = torch.randint(0, 256, (n, 3, SIDE, SIDE), generator=generator).to(torch.uint8)
    labels = torch.randint(0, len(CLASSES), (n,), generator=generator)
    if teacher is not None:
        with torch.inference_mode():
            right = teacher.eval()(pixels).argmax(dim=1)
        wrong = torch.rand(n, generator=generator) < noise
        labels = torch.where(wrong, labels, right)
    fingerprint = pixel_fingerprint(pixels, labels, CLASSES)
    return Dataset("toy", "test", TensorImages(pixels), labels, CLASSES, fingerprint)
