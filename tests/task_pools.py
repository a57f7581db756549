"""Pools for data-driven fusion: a pico CLIP with experts, and linear networks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from dual_encoders import make_clip, make_expert
from pico import make_classifier, make_dataset
from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.models.classifier import Classifier

TASKS = {"ants": ("ant", "bee", "cat"), "numbers": ("one", "two"), "foxes": ("fox", "dog", "cat")}


@dataclass(frozen=True)
class ClipPool:
    """A dual encoder, its experts and their tasks."""

    base: Path
    members: dict[str, Path]
    tasks: dict[str, Dataset]


def random_dataset(classes: tuple[str, ...], n: int = 24, seed: int = 0, side: int = 16) -> Dataset:
    """Noise with labels; every seed has a colour of its own, so that tasks can be told apart."""
    data = make_dataset(n, side, classes)
    generator = torch.Generator().manual_seed(100 + seed)
    shift = torch.randint(0, 120, (1, 3, 1, 1), generator=generator)
    noise = torch.randint(0, 130, (n, 3, side, side), generator=generator)
    images = TensorImages((noise + shift).to(torch.uint8))
    return replace(data, name=f"task{seed}", images=images, fingerprint=f"{seed:064d}")


def make_clip_pool(folder: Path) -> ClipPool:
    base = make_clip(folder / "base")
    members = {
        name: make_expert(base, folder / name, seed=index) for index, name in enumerate(TASKS)
    }
    tasks = {
        name: random_dataset(classes, seed=index)
        for index, (name, classes) in enumerate(TASKS.items())
    }
    return ClipPool(base, members, tasks)


class Flat(nn.Module):
    """A linear network on a few pixels: two layers without anything between them."""

    def __init__(self, seed: int, hidden: int = 5, classes: int = 4, side: int = 2) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.first = nn.Linear(3 * side * side, hidden, bias=False)
        self.last = nn.Linear(hidden, classes, bias=False)
        for layer in (self.first, self.last):
            layer.weight.data = torch.randn(layer.weight.shape, generator=generator) * 0.5

    def forward(self, pixels: Tensor) -> Tensor:
        return self.last(self.first(pixels.flatten(1)))


def flat_model(seed: int, **sizes: int) -> Classifier:
    return make_classifier(Flat(seed, **sizes), size=2)
