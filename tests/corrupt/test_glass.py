"""Glass blur's pointer doubling against the sequential scan that defines it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from stockpot.corrupt.blur.glass_blur import chain_ends
from stockpot.corrupt.draws import Draws


def scanned(values: np.ndarray, steps: Tensor, reach: int) -> np.ndarray:
    """One pass as the original does it: backwards, pixel by pixel, copying in place."""
    values = values.copy()
    height, width = values.shape
    for row in range(height - reach, reach, -1):
        for column in range(width - reach, reach, -1):
            right, down = steps[:, row - reach - 1, column - reach - 1].tolist()
            values[row, column] = values[row + down, column + right]
    return values


def check(steps: Tensor, reach: int, height: int, width: int) -> None:
    places = np.arange(height * width).reshape(height, width)
    ours = chain_ends(steps[None], reach, height, width)[0].view(height, width)
    assert np.array_equal(ours.numpy(), scanned(places, steps, reach))


@pytest.mark.parametrize(("reach", "height", "width"), [(1, 16, 16), (2, 40, 33), (4, 31, 64)])
def test_equals_the_scan_for_random_steps(reach: int, height: int, width: int) -> None:
    shape = 2, height - 2 * reach, width - 2 * reach
    for seed in range(3):
        steps = Draws([seed], "glass", torch.device("cpu")).integers(-reach, reach, shape)[0]
        check(steps, reach, height, width)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_equals_the_scan_for_any_steps(data: st.DataObject) -> None:
    reach = data.draw(st.integers(1, 4))
    height, width = data.draw(st.integers(16, 20)), data.draw(st.integers(16, 20))
    shape = 2, height - 2 * reach, width - 2 * reach
    # Few distinct steps make the longest chains.
    choices = data.draw(st.lists(st.integers(-reach, reach - 1), min_size=1, max_size=3))
    picks = data.draw(st.randoms(use_true_random=False))
    count = int(np.prod(shape))
    steps = torch.tensor([picks.choice(choices) for _ in range(count)]).view(shape)
    check(steps, reach, height, width)


def test_equals_the_scan_for_one_chain_through_the_whole_picture() -> None:
    steps = torch.zeros(2, 20, 20, dtype=torch.int64)
    steps[0] = 1  # every pixel copies from its right neighbour
    check(steps, 2, 24, 24)
    steps[1] = 1
    check(steps, 2, 24, 24)
