"""A baseline JPEG round trip in batched tensor operations, after libjpeg's choices.

Entropy coding loses nothing, so it is left out. What loses something is done as libjpeg does it:
8-bit YCbCr, 2 x 2 chroma averages with alternating rounding, 8 x 8 DCT, division by the tables
rounded to the nearest integer, and on the way back the triangle ("fancy") chroma upsampling. The
DCT is a float matrix product where libjpeg uses scaled integers, so a coefficient that falls on
the border between two steps may go the other way.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

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


def recompress(pixels: Tensor, quality: int) -> Tensor:
    """Compress and decompress uint8 N x 3 x H x W pictures at a libjpeg quality of 1 to 100."""
    height, width = pixels.shape[2:]
    red, green, blue = pixels.float().unbind(1)
    luma = (0.299 * red + 0.587 * green + 0.114 * blue).round_()
    cb = (-0.168735892 * red - 0.331264108 * green + 0.5 * blue + 128).round_()
    cr = (0.5 * red - 0.418687589 * green - 0.081312411 * blue + 128).round_()
    # Whole blocks: 8 px of luma, 16 px of chroma; the border repeats the last pixel.
    luma = F.pad(luma, (0, -width % 16, 0, -height % 16), mode="replicate")
    chroma = torch.stack([cb, cr], 1)
    chroma = F.pad(chroma, (0, -width % 16, 0, -height % 16), mode="replicate")
    luma = _quantise(luma, _table("luma", quality, pixels.device))[:, :height, :width]
    chroma = _quantise(_halve(chroma), _table("chroma", quality, pixels.device))
    # libjpeg upsamples what the picture covers; the rest of the last block is not looked at.
    chroma = _double(chroma[..., : -(-height // 2), : -(-width // 2)])[..., :height, :width]
    cb, cr = (chroma - 128).unbind(1)
    planes = [
        luma + (1.402 * cr).round_(),
        luma + (-0.344136286 * cb - 0.714136286 * cr).round_(),
        luma + (1.772 * cb).round_(),
    ]
    return torch.stack(planes, 1).clamp_(0, 255).to(torch.uint8)


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
    right = F.pad(lines, (1, 1), mode="replicate")
    even = ((3 * lines + right[..., :-2] + 8) / 16).floor_()
    odd = ((3 * lines + right[..., 2:] + 7) / 16).floor_()
    return torch.stack([even, odd], -1).flatten(-2)


def _quantise(planes: Tensor, table: Tensor) -> Tensor:
    """Level-shift, DCT, quantise and all the way back, over ... x H x W in blocks of eight."""
    dct = _dct(planes.device)
    height, width = planes.shape[-2:]
    blocks = planes.reshape(*planes.shape[:-2], height // 8, 8, width // 8, 8) - 128
    coefficients = torch.einsum("ui,...hiwj,vj->...hwuv", dct, blocks, dct)
    coefficients = (coefficients / table).round_() * table
    back = torch.einsum("ui,...hwuv,vj->...hiwj", dct, coefficients, dct)
    return back.reshape(planes.shape).round_().add_(128).clamp_(0, 255)


@lru_cache(maxsize=8)
def _dct(device: torch.device) -> Tensor:
    place = torch.arange(8, dtype=torch.float64)
    matrix = torch.cos((2 * place + 1) * place[:, None] * math.pi / 16) / 2
    matrix[0] /= math.sqrt(2)
    return matrix.float().to(device)


@lru_cache(maxsize=64)
def _table(kind: str, quality: int, device: torch.device) -> Tensor:
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    base = torch.tensor(_LUMA if kind == "luma" else _CHROMA)
    return ((base * scale + 50) // 100).clamp(1, 255).float().to(device)
