"""Weights that follow from a tensor's name, so that a recorded output needs no stored weights."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray


def named_weights(name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Numbers of a useful size for one tensor: norms near 1, matrices of unit gain."""
    draws = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape)
    if len(shape) > 1:
        # Codebooks are compared with latents as they are; all else is divided by its inputs.
        fan = 1 if "embed" in name else int(np.prod(shape[1:]))
        return (draws / np.sqrt(fan)).astype(np.float32)
    is_gain = "norm" in name and name.endswith("weight")
    return (0.1 * draws + is_gain).astype(np.float32)


def named_pictures(side: int) -> NDArray[np.float32]:
    """One picture in [0, 1], as 1 x 3 x side x side."""
    draws = np.random.RandomState(7).uniform(size=(1, 3, side, side))
    return draws.astype(np.float32)
