"""A search whose best point is known: task arithmetic from nothing to four times the truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

import stockpot
from pico import CLASSES, make_classifier, make_dataset
from stockpot.datasets.dataset import Dataset
from stockpot.models.classifier import Classifier
from stockpot.results.tuning import TuneResult


class Levels(nn.Module):
    """Right about an image of `make_dataset` where its levels are those of the labels."""

    def __init__(self, levels: torch.Tensor) -> None:
        super().__init__()
        self.levels = nn.Parameter(levels)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        seen = pixels[:, :, 0, :].mean(dim=(1, 2))
        return -50 * (seen[:, None] - self.levels) ** 2


TRUE = torch.arange(4) * 40 / 255


def levels(factor: float) -> Classifier:
    return make_classifier(Levels(TRUE * factor), CLASSES)


def parted() -> tuple[Dataset, Dataset]:
    data = make_dataset(60)
    return data.take(range(30)), data.take(range(30, 60))


def toy(out: Path, method: str = "task_arithmetic", **settings: Any) -> TuneResult:
    """Task arithmetic from nothing to four times the truth: the best scale is one quarter."""
    seen, test = parted()
    common = {"space": {"scale": "0:1"}, "sampler": "grid", "points": 9, "test": test}
    members = {"far": levels(4.0)}
    return stockpot.tune(method, members, seen, base=levels(0.0), out=out, **common | settings)


def told(found: TuneResult) -> list[Any]:
    return [(t.number, t.state, t.params, t.values) for t in found.trials]
