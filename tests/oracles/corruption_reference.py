"""What the original ImageNet-C and CIFAR-10-C code made of two photographs, to compare with.

The file here holds both pictures whole, all results at 32 px, and of the results at 224 px the
outermost two rows and columns and every fifth between. With the environment variable
STOCKPOT_CORRUPTION_REFERENCE naming the full file, every pixel is compared.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stockpot.corrupt.constants import Profile

SIDES: dict[Profile, int] = {"imagenet": 224, "cifar": 32}
_KEYS: dict[Profile, str] = {"imagenet": "imagenet_c_224", "cifar": "cifar_c_32"}


class Reference(NamedTuple):
    """Clean pictures and expected results, uint8 N x 3 x H x W; `rows` are the kept positions."""

    arrays: dict[str, np.ndarray]

    def clean(self, profile: Profile) -> Tensor:
        return _channels_first(self.arrays[f"images_{SIDES[profile]}"])

    def expected(self, profile: Profile, name: str, severity: int) -> Tensor:
        return _channels_first(self.arrays[f"{_KEYS[profile]}/{name}_{severity}"])

    def kept(self, profile: Profile, images: Tensor) -> Tensor:
        """The pixels of our result that the reference kept."""
        if profile == "cifar" or "sampled_224" not in self.arrays:
            return images
        rows = torch.from_numpy(self.arrays["sampled_224"]).long()
        return images[:, :, rows][..., rows]

    def difference(self, profile: Profile, name: str, severity: int, ours: Tensor) -> Tensor:
        """Absolute differences in grey levels."""
        expected = self.expected(profile, name, severity).int()
        return (self.kept(profile, ours).int() - expected).abs()


@cache
def reference() -> Reference:
    here = Path(__file__).parent / "data" / "corruptions.npz"
    path = os.environ.get("STOCKPOT_CORRUPTION_REFERENCE", here)
    with np.load(path) as file:
        return Reference({key: file[key] for key in file.files})


def _channels_first(images: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))


def psnr(images: Tensor, clean: Tensor) -> Tensor:
    """Peak signal-to-noise ratio of each image in decibels."""
    error = (images.double() - clean.double()).square().mean((1, 2, 3))
    return 10 * torch.log10(255**2 / error)
