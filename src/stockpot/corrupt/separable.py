"""Separable filters as two matrices: one acts on rows, one on columns, borders folded in.

A matrix product is the one form of a filter that is fast on every device, takes any kernel length
(elastic smooths with a kernel wider than the picture) and any border rule.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Border = Literal["nearest", "reflect", "mirror"]
"""What lies outside a b c: `nearest` aa|abc|cc, `reflect` ba|abc|cb, `mirror` cb|abc|ba."""


def smooth(
    images: Tensor, sigma: float, *, truncate: float = 4.0, border: Border = "nearest"
) -> Tensor:
    """Gaussian blur over the last two axes; the kernel ends `truncate` sigmas from its centre."""
    radius = int(truncate * sigma + 0.5)
    if radius == 0:
        return images
    height, width = images.shape[-2:]
    # A short kernel on a large picture wastes most of a matrix; a CPU is faster adding shifted
    # copies, while a GPU prefers one product to many small kernels.
    if images.is_cpu and border != "mirror" and 14 * radius < min(height, width):
        return _add_shifted(images, gaussian_taps(sigma, radius).tolist(), border)
    rows = gaussian_matrix(height, sigma, radius, border, images.device)
    columns = gaussian_matrix(width, sigma, radius, border, images.device)
    return rows @ (images @ columns.T)


def gaussian_taps(sigma: float, radius: int) -> NDArray[np.float64]:
    """The 2 radius + 1 weights of a gaussian, of sum one."""
    taps = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    return np.asarray(taps / taps.sum())


def _add_shifted(images: Tensor, taps: list[float], border: Border) -> Tensor:
    radius = len(taps) // 2
    for axis in (-2, -1):
        size = images.shape[axis]
        before, after = images.narrow(axis, 0, radius), images.narrow(axis, size - radius, radius)
        if border == "nearest":
            before = before.narrow(axis, 0, 1).expand_as(before)
            after = after.narrow(axis, radius - 1, 1).expand_as(after)
        else:
            before, after = before.flip(axis), after.flip(axis)
        padded = torch.cat([before, images, after], axis)
        images = images * taps[radius]
        for step in range(1, radius + 1):
            pair = padded.narrow(axis, radius - step, size) + padded.narrow(
                axis, radius + step, size
            )
            images.add_(pair, alpha=taps[radius + step])
    return images


@lru_cache(maxsize=64)
def gaussian_matrix(
    size: int, sigma: float, radius: int, border: Border, device: torch.device
) -> Tensor:
    """The size x size matrix that smooths a vector with a gaussian of 2 radius + 1 taps."""
    offsets = np.arange(-radius, radius + 1)
    position = np.arange(size)
    sources = _inside(position[:, None] + offsets, size, border)
    matrix = np.zeros((size, size))
    np.add.at(
        matrix,
        (np.broadcast_to(position[:, None], sources.shape), sources),
        gaussian_taps(sigma, radius),
    )
    return torch.from_numpy(matrix).float().to(device)


def _inside(index: NDArray[np.int64], size: int, border: Border) -> NDArray[np.int64]:
    if border == "nearest":
        return index.clip(0, size - 1)
    period = 2 * size if border == "reflect" else 2 * size - 2
    index = index % period
    return np.where(index < size, index, period - index - (border == "reflect"))
