"""Equal compute: epochs that fit into a number of operations, counted by hand."""

from __future__ import annotations

import pytest
from torch import nn

from pico import make_classifier, make_dataset
from stockpot.errors import BadParameterError
from stockpot.harden.loop import train
from stockpot.harden.nominal import nominal

# 768 values to 4 classes, products and sums; once forward, twice backward; 24 images.
EPOCH = 2 * 768 * 4 * 3 * 24


def steps(compute: float) -> float:
    model = make_classifier(nn.Sequential(nn.Flatten(), nn.Linear(768, 4)))
    found = train(model, make_dataset(26), nominal(), batch_size=8, compute=compute)
    return found["steps"]


def test_as_many_whole_epochs_as_fit() -> None:
    # Three steps an epoch: the last two of 26 images are dropped, and are not counted.
    assert steps(2 * EPOCH / 1e15) == 6
    assert steps(2.9 * EPOCH / 1e15) == 6
    assert steps(3 * EPOCH / 1e15) == 9


def test_too_little_for_one_epoch_is_refused() -> None:
    with pytest.raises(BadParameterError, match=r"compute: one epoch takes 4.42e-10"):
        steps(0.9 * EPOCH / 1e15)
