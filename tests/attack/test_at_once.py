"""How many images a processor attacks at a time."""

from __future__ import annotations

import pytest
import torch

from stockpot.measure.adversarial.work import at_once

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize("count", [1, 40, 256, 257, 300, 320, 321, 500, 560, 1000, 10_000])
@pytest.mark.parametrize("size", [1, 7, 64, 256])
def test_batches_are_a_quarter_larger_at_most_and_never_more_of_them(count: int, size: int) -> None:
    chosen = at_once(count, size, CPU)
    assert chosen <= 1.25 * size
    assert -(-count // chosen) <= -(-count // size)


def test_a_short_batch_at_the_end_joins_the_others() -> None:
    assert at_once(300, 256, CPU) == 300
    assert at_once(560, 256, CPU) == 280
    assert at_once(500, 256, CPU) == 256
    assert at_once(0, 256, CPU) == 256


def test_a_gpu_gets_what_was_asked_for() -> None:
    assert at_once(300, 256, GPU) == 256
