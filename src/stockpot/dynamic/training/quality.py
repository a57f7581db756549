"""How well an autoencoder gives pictures back: error, codebook use, and pictures to look at."""

from __future__ import annotations

import math
from io import BytesIO
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor

from stockpot.models.autoencoder.model import Autoencoder


class Quality(NamedTuple):
    """Reconstruction of one set of pictures."""

    n: int
    l1: float
    psnr: float
    """Mean over pictures of the peak signal-to-noise ratio, in dB."""
    codes: int
    """How many codes of the book were used at all."""


@torch.no_grad()
def quality(model: Autoencoder, pixels: Tensor, batch: int = 250) -> Quality:
    """Reconstruct uint8 pictures and compare."""
    absolute, ratios, used = 0.0, 0.0, set[int]()
    device = next(model.parameters()).device
    for start in range(0, len(pixels), batch):
        part = pixels[start : start + batch].to(device).float() / 255
        latents, codes = model.settle(model.encode(part))
        made = model.decode(latents).clamp(0, 1)
        absolute += float((made - part).abs().mean(dim=(1, 2, 3)).sum())
        squared = (made - part).square().mean(dim=(1, 2, 3)).clamp_min(1e-10)
        ratios += float((-10 * squared.log10()).sum())
        if codes is not None:
            used |= set(codes.flatten().tolist())
    n = max(1, len(pixels))
    return Quality(len(pixels), absolute / n, ratios / n, len(used))


@torch.no_grad()
def strip(model: Autoencoder, pixels: Tensor, *, zoom: int = 2) -> bytes:
    """A PNG with pictures above and their reconstructions below."""
    device = next(model.parameters()).device
    made = model(pixels.to(device).float() / 255).cpu()
    rows = torch.stack([pixels.float() / 255, made])
    return grid_png(rows, zoom=zoom)


def grid_png(rows: Tensor, *, zoom: int = 1, gap: int = 2) -> bytes:
    """Pictures (rows x columns x 3 x H x W in [0, 1]) as one PNG on white."""
    down, across, _, height, width = rows.shape
    sheet = torch.ones(3, down * (height + gap) - gap, across * (width + gap) - gap)
    for row in range(down):
        for column in range(across):
            top, left = row * (height + gap), column * (width + gap)
            sheet[:, top : top + height, left : left + width] = rows[row, column]
    levels = (sheet.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
    image = Image.fromarray(levels)
    if zoom != 1:
        size = (math.floor(image.width * zoom), math.floor(image.height * zoom))
        image = image.resize(size, Image.Resampling.NEAREST)
    stream = BytesIO()
    image.save(stream, format="PNG", optimize=True)
    return stream.getvalue()
