"""Filters and codecs against scipy, Pillow and brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from corruption_pictures import photographs
from scipy import ndimage
from torch.utils._python_dispatch import TorchDispatchMode

from stockpot.corrupt.blur.zoom_blur import _zoom_grid, clipped_zoom
from stockpot.corrupt.digital.dct import recompress
from stockpot.corrupt.digital.jpeg_compression import through_pillow
from stockpot.corrupt.digital.pixelate import shrink, shrink_by_pillow
from stockpot.corrupt.separable import Border, smooth
from stockpot.corrupt.weather.edges import distance_to_edge


@pytest.mark.parametrize("border", ["nearest", "reflect", "mirror"])
@pytest.mark.parametrize("sigma", [0.05, 0.4, 1.0, 3.0, 40.0])
@pytest.mark.parametrize("truncate", [3.0, 4.0])
def test_smoothing_is_scipys(border: Border, sigma: float, truncate: float) -> None:
    picture = photographs(61, 128)[0, 0].double()
    expected = ndimage.gaussian_filter(picture.numpy(), sigma, mode=border, truncate=truncate)
    ours = smooth(picture.float(), sigma, truncate=truncate, border=border)
    assert np.abs(ours.numpy() - expected).max() < 2e-3


@pytest.mark.parametrize("factor", [1.01, 1.2, 2.5, 4.5])
@pytest.mark.parametrize("side", [32, 61, 224])
def test_clipped_zoom_is_scipys(factor: float, side: int) -> None:
    picture = photographs(side, side)[0, 0].double().numpy()
    crop = math.ceil(side / factor)
    first = (side - crop) // 2
    part = picture[first : first + crop, first : first + crop]
    enlarged = ndimage.zoom(part, factor, order=1)
    trimmed = (len(enlarged) - side) // 2
    expected = enlarged[trimmed : trimmed + side, trimmed : trimmed + side]
    ours = clipped_zoom(torch.from_numpy(picture).float()[None, None], factor)[0, 0]
    assert np.abs(ours.numpy() - expected).max() < 0.02


class _OnTheProcessor(TorchDispatchMode):
    """Notes how many values each operation of the processor gave."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[int] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        found = func(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor) and found.is_cpu:
            self.made.append(found.numel())
        return found


def test_a_zoom_for_another_device_is_made_there() -> None:
    with _OnTheProcessor() as noted:
        grid = _zoom_grid(64, 48, 1.37, torch.device("meta"))
    assert grid.shape == (64, 48, 2)
    assert max(noted.made) == 64


@pytest.mark.parametrize("quality", [7, 15, 25, 50, 65, 80])
@pytest.mark.parametrize(("height", "width"), [(224, 224), (65, 33), (16, 17)])
def test_the_tensor_codec_is_near_libjpeg_turbo(quality: int, height: int, width: int) -> None:
    # A coefficient on the border between two steps may go the other way, which moves one block by a
    # step; so the mean is held tight, and single values are not.
    pixels = photographs(height, width)
    difference = (recompress(pixels, quality).int() - through_pillow(pixels, quality).int()).abs()
    assert difference.float().mean() < 0.5
    assert (difference > 2).float().mean() < 0.08


@pytest.mark.parametrize("share", [0.25, 0.3, 0.4, 0.5, 0.6, 0.65, 0.75, 0.85, 0.9, 0.95])
@pytest.mark.parametrize(("height", "width"), [(224, 224), (32, 32), (45, 70)])
def test_tensor_boxes_equal_pillows(share: float, height: int, width: int) -> None:
    pixels = photographs(height, width)
    small = int(height * share), int(width * share)
    assert torch.equal(shrink(pixels, *small), shrink_by_pillow(pixels, *small))


def test_distance_is_the_cheapest_path() -> None:
    # Any (x, y) is reached by knight steps and straight or diagonal ones; the closed form of the
    # chamfer metric says how many.
    edges = torch.zeros(1, 40, 50, dtype=torch.bool)
    points = [(3, 4), (30, 10), (20, 47)]
    for row, column in points:
        edges[0, row, column] = True
    rows, columns = np.mgrid[:40, :50]
    expected = np.full((40, 50), 20 * 65536)
    for row, column in points:
        long = np.maximum(abs(rows - row), abs(columns - column))
        short = np.minimum(abs(rows - row), abs(columns - column))
        flat = (long - 2 * short) * 65536 + short * 143976
        steep = (long - short) * 143976 + (2 * short - long) * 91750
        expected = np.minimum(expected, np.where(long >= 2 * short, flat, steep))
    assert np.array_equal(distance_to_edge(edges, 20)[0].numpy(), expected)
