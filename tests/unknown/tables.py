"""Answers from tables of logits, without a model."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pico import make_dataset
from stockpot.measure.unknown.answers import Answers
from stockpot.score.scorer import scorer_for


def answers_from(logits: NDArray[np.float64], labels: NDArray[np.int64]) -> Answers:
    """Answers to as many images with these labels; equal columns stand for classes."""
    count = logits.shape[1]
    data = make_dataset(len(logits), classes=tuple(f"class {n}" for n in range(count)))
    data = data.take(range(len(logits)))
    scorer = scorer_for(data.classes, data)
    correct = np.isfinite(logits).all(axis=1) & (logits.argmax(axis=1) == labels)
    return Answers(logits, labels[:, None], correct, None, scorer)


class Table(nn.Module):
    """Logits of the row that a picture's first pixel spells (rows below 256)."""

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()
        self.table = nn.Parameter(logits)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        rows = (pixels[:, 0, 0, 0] * 255).round().long()
        return self.table[rows]
