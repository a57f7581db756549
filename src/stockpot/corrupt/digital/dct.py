"""A baseline JPEG round trip in batched tensor operations, after libjpeg's choices.

Entropy coding loses nothing, so it is left out. What loses something is done as libjpeg does it:
8-bit YCbCr, chroma at half the resolution, 8 x 8 DCT, division by the tables rounded to the
nearest integer. The DCT is a float matrix product where libjpeg uses scaled integers, so a
coefficient that falls on the border between two steps may go the other way.

The two families of codec differ in chroma. libjpeg-turbo (in Pillow since 9.0) averages 2 x 2 with
alternating rounding and comes back by a triangle filter. IJG's libjpeg 7 to 9 (in Pillow before,
and so in the published ImageNet-C and CIFAR-10-C) halves and doubles within a DCT of 16 x 16. At 32
px and high quality that is a difference of several grey levels.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.corrupt.fused.kernel import Kernel

_CODED, _QUANTISED = Kernel("jpeg:coded"), Kernel("jpeg:quantised")
_DECODED = Kernel("jpeg:decoded")

Codec = Literal["libjpeg-turbo", "libjpeg-9"]

# ITU-T T.81, Annex K.
_LUMA = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
_CHROMA = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    *((99,) * 8 for _ in range(4)),
)


def recompress(pixels: Tensor, quality: int, codec: Codec = "libjpeg-turbo") -> Tensor:
    """Compress and decompress uint8 N x 3 x H x W pictures at a libjpeg quality of 1 to 100."""
    height, width = pixels.shape[2:]
    coded = _CODED(lambda: _coded(pixels), pixels.device, pixels)
    luma = _lose(coded[:, :1], _table("luma", quality, pixels.device), 8)
    table = _table("chroma", quality, pixels.device)
    if codec == "libjpeg-9":
        chroma = _whole(_lose(coded[:, 1:], table, 16))
        return _pictures(_whole(luma), chroma, height, width)
    chroma = _lose(_halve(coded[:, 1:]), table, 8)
    return _DECODED(
        lambda: _decoded(luma, chroma, height, width), pixels.device, luma, chroma, height, width
    )


def _coded(pixels: Tensor) -> Tensor:
    """YCbCr in whole numbers and whole blocks: 8 px of luma, 16 px of chroma."""
    height, width = pixels.shape[2:]
    red, green, blue = pixels.float().unbind(1)
    planes = [
        0.299 * red + 0.587 * green + 0.114 * blue,
        -0.168735892 * red - 0.331264108 * green + 0.5 * blue + 128,
        0.5 * red - 0.418687589 * green - 0.081312411 * blue + 128,
    ]
    # The border repeats the last pixel.
    missing = 0, -width % 16, 0, -height % 16
    return F.pad(_nearest(torch.stack(planes, 1)), missing, mode="replicate")


def _decoded(luma: Tensor, chroma: Tensor, height: int, width: int) -> Tensor:
    """RGB from luma and from chroma of half the resolution, as they come from their blocks."""
    # Only what the picture covers is upsampled; the rest of the last block is not looked at.
    covered = _whole(chroma)[..., : -(-height // 2), : -(-width // 2)]
    return _pictures(_whole(luma), _double(covered), height, width)


def _pictures(luma: Tensor, chroma: Tensor, height: int, width: int) -> Tensor:
    """RGB from whole levels of luma and chroma of the same resolution."""
    luma = luma[:, 0, :height, :width]
    cb, cr = (chroma[..., :height, :width] - 128).unbind(1)
    planes = [
        luma + _nearest(1.402 * cr),
        luma + _nearest(-0.344136286 * cb - 0.714136286 * cr),
        luma + _nearest(1.772 * cb),
    ]
    return torch.stack(planes, 1).clamp_(0, 255).to(torch.uint8)


def _whole(planes: Tensor) -> Tensor:
    """Levels from what comes out of the inverse DCT."""
    return _nearest(planes + 128).clamp_(0, 255)


def _nearest(values: Tensor) -> Tensor:
    """Round with halves going up, as fixed-point arithmetic does."""
    return values.add_(0.5).floor_()


def _halve(planes: Tensor) -> Tensor:
    """Means of 2 x 2; the rounding alternates 1, 2 from column to column, as in libjpeg."""
    total = planes[..., ::2, ::2] + planes[..., 1::2, ::2]
    total += planes[..., ::2, 1::2]
    total += planes[..., 1::2, 1::2]
    bias = torch.arange(total.shape[-1], device=planes.device) % 2 + 1
    return ((total + bias) / 4).floor_()


def _double(planes: Tensor) -> Tensor:
    """Triangle filter: weights 9, 3, 3, 1 of the four nearest, in integers as in libjpeg."""
    down = F.pad(planes, (0, 0, 1, 1), mode="replicate")
    lines = torch.stack(
        [3 * planes + down[..., :-2, :], 3 * planes + down[..., 2:, :]], -2
    ).flatten(-3, -2)
    # Sums of a column, four times too large; sixteen times after the second step.
    right = F.pad(lines, (1, 1, 0, 0), mode="replicate")
    even = ((3 * lines + right[..., :-2] + 8) / 16).floor_()
    odd = ((3 * lines + right[..., 2:] + 7) / 16).floor_()
    return torch.stack([even, odd], -1).flatten(-2)


def _lose(planes: Tensor, table: Tensor, block: int) -> Tensor:
    """Level-shift, DCT, quantise and back by the inverse DCT, over ... x H x W.

    Blocks are 8 px wide, or 16 of whose DCT the 8 lowest frequencies are kept.
    """
    dct = _dct(block, planes.device)
    height, width = planes.shape[-2:]
    blocks = planes.reshape(*planes.shape[:-2], height // block, block, width // block, block)
    raw = torch.einsum("ui,...hiwj,vj->...hwuv", dct, blocks - 128, dct)
    kept = _QUANTISED(lambda: _quantised(raw, table), planes.device, raw, table)
    dct = dct * (block / 8)
    return torch.einsum("ui,...hwuv,vj->...hiwj", dct, kept, dct).reshape(planes.shape)


def _quantised(raw: Tensor, table: Tensor) -> Tensor:
    """Coefficients rounded to whole steps of the table."""
    # libjpeg's DCT comes out eight times too large and in integers; then a division rounds half
    # away from zero.
    sharp = _nearest(raw * 8)
    steps = ((sharp.abs() + 4 * table) / (8 * table)).floor_() * sharp.sign()
    return steps * table


@lru_cache(maxsize=8)
def _dct(block: int, device: torch.device) -> Tensor:
    """The 8 lowest frequencies of a block, scaled so that a constant block keeps its DC."""
    place = torch.arange(block, dtype=torch.float64)
    matrix = torch.cos((2 * place + 1) * place[:8, None] * math.pi / (2 * block))
    matrix[0] /= math.sqrt(2)
    return (matrix * (4 / block)).float().to(device)


@lru_cache(maxsize=64)
def _table(kind: str, quality: int, device: torch.device) -> Tensor:
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    base = torch.tensor(_LUMA if kind == "luma" else _CHROMA)
    return ((base * scale + 50) // 100).clamp(1, 255).float().to(device)
