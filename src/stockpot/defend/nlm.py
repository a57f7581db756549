"""Non-local means: each pixel becomes a mean of pixels whose surroundings look alike.

Buades, Coll and Morel (CVPR 2005), with the noise estimated from the finest wavelet coefficients
(Donoho and Johnstone, 1994). Hendrycks and Dietterich report that it raises ResNet-50's mCE
(arXiv:1903.12261, section 5.3): a defence that does not help is worth measuring too.
"""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.defend import defences
from stockpot.defend.defended import Defended
from stockpot.errors import BadParameterError
from stockpot.models.classifier import Classifier

_NORMAL_QUARTILE = 0.6744897501960817
_FURTHEST = 5.0  # weights below exp(-5) count as zero
# The high-pass filter of Daubechies' wavelet with two vanishing moments.
_WAVELET = (-0.48296291314469025, 0.836516303737469, -0.22414386804185735, -0.12940952255092145)


@defences.register("nlm", paper="arXiv:1903.12261")
def nlm(
    model: Classifier, *, strength: float = 0.8, patch: int = 7, distance: int = 11
) -> Classifier:
    """Denoise each picture by as much as it is noisy before the model looks.

    Args:
        strength: the filter's h in units of the estimated noise.
        patch: side of the compared patches, odd, from 3 on.
        distance: how far away alike patches are looked for, in pixels.
    """
    if strength <= 0 or patch < 3 or patch % 2 == 0 or distance < 1:
        raise BadParameterError(
            "nlm: expected strength above 0, an odd patch from 3 on and distance from 1 on, "
            f"got {strength}, {patch} and {distance}."
        )
    label = f"nlm(strength={strength}, patch={patch}, distance={distance})"
    change = partial(_denoise_blindly, strength=strength, patch=patch, distance=distance)
    return Defended(model, label, change)


def _denoise_blindly(pixels: Tensor, strength: float, patch: int, distance: int) -> Tensor:
    sigma = estimate_noise(pixels)
    return denoise(pixels, sigma, strength * sigma, patch, distance)


def estimate_noise(pixels: Tensor) -> Tensor:
    """The noise's standard deviation in each image, N: median finest coefficient over 0.6745."""
    height, width = pixels.shape[2:]
    rows, columns = _wavelet(height, pixels.device), _wavelet(width, pixels.device)
    details = (rows @ (pixels.float() @ columns.T)).abs().flatten(2)
    # Coefficients of exactly zero come from clipped or empty parts and say nothing of noise.
    details = torch.where(details > 1e-7, details, torch.nan)
    estimate = details.nanmedian(2).values / _NORMAL_QUARTILE
    return estimate.nan_to_num(0.0).mean(1)


def denoise(pixels: Tensor, sigma: Tensor, h: Tensor, patch: int, distance: int) -> Tensor:
    """Non-local means of N x C x H x W pixels with noise `sigma` and bandwidth `h`, N each."""
    height, width = pixels.shape[2:]
    reach, rim = distance, patch // 2
    border = reach + rim
    padded = F.pad(pixels.float(), (border, border, border, border), mode="reflect")
    around = padded[..., reach:-reach, reach:-reach]  # the picture and its patches' rim
    noise = 2 * sigma.square()[:, None, None]
    bandwidth = h.square().clamp(min=1e-12)[:, None, None]
    total = torch.zeros_like(pixels, dtype=torch.float32)
    weights = total.new_zeros(len(pixels), 1, height, width)
    for down in range(2 * reach + 1):
        for right in range(2 * reach + 1):
            shifted = padded[..., down : down + height + 2 * rim, right : right + width + 2 * rim]
            apart = _patch_sum((around - shifted).square().mean(1) - noise, rim)
            # What lies further counts as zero anyway, and exponents that underflow are slow.
            scaled = (apart.clamp_(min=0) / (bandwidth * patch**2)).clamp_(max=2 * _FURTHEST)
            weight = (torch.exp(-scaled) * (scaled <= _FURTHEST))[:, None]
            inner = shifted[..., rim : rim + height, rim : rim + width]
            total.addcmul_(inner, weight)
            weights += weight
    return (total / weights).to(pixels.dtype)


def _patch_sum(values: Tensor, rim: int) -> Tensor:
    """Sums of windows around each pixel, from rim - 1 before it to rim after it.

    Quirk kept from scikit-image's fast mode, which is the usual tool: the first row and column of a
    patch are not compared, although the sum is divided by the whole patch.
    """
    for axis in (1, 2):
        size = values.shape[axis] - 2 * rim
        total = values.narrow(axis, 1, size)
        for step in range(2, 2 * rim + 1):
            total = total + values.narrow(axis, step, size)
        values = total
    return values


@lru_cache(maxsize=16)
@torch.inference_mode(False)  # kept for later calls, which may want gradients
def _wavelet(size: int, device: torch.device) -> Tensor:
    """The matrix of the finest high-pass step along an axis; the border is mirrored."""
    count = (size + len(_WAVELET) - 1) // 2
    matrix = np.zeros((count, size))
    for row in range(count):
        for tap, weight in enumerate(_WAVELET):
            place = (2 * row + 1 - tap) % (2 * size)
            matrix[row, min(place, 2 * size - 1 - place)] += weight
    return torch.from_numpy(matrix).float().to(device)
