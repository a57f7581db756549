"""Relevance as something to look at: pictures with their heat on top, and sheets of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch import Tensor

from stockpot.explain.relevance import normalised

# From cold to hot: dark violet, magenta, orange, pale yellow; its brightness only rises.
_STOPS = ((0.05, 0.03, 0.25), (0.55, 0.10, 0.45), (0.95, 0.45, 0.15), (1.0, 0.95, 0.65))


def overlay(pixels: Tensor, relevance: Tensor, *, strength: float = 0.6) -> Tensor:
    """Pictures (float NCHW in [0, 1]) under a smooth, coloured map of their relevance.

    Args:
        pixels: the pictures.
        relevance: [images, rows, columns], as `explain` gives it.
        strength: how much of the map shows; 0 is the picture itself.
    """
    heat = normalised(relevance)[:, None].to(pixels)
    heat = F.interpolate(heat, size=pixels.shape[-2:], mode="bicubic", align_corners=False)
    colours = colour(heat[:, 0].clamp(0, 1))
    grey = pixels.mean(dim=1, keepdim=True)
    return ((1 - strength) * (0.5 * pixels + 0.5 * grey) + strength * colours).clamp(0, 1)


def colour(heat: Tensor) -> Tensor:
    """Values in [0, 1] as colours [images, 3, rows, columns]."""
    stops = torch.tensor(_STOPS, dtype=heat.dtype, device=heat.device)
    place = heat * (len(stops) - 1)
    lower = place.floor().clamp(max=len(stops) - 2).long()
    share = (place - lower)[..., None]
    return ((1 - share) * stops[lower] + share * stops[lower + 1]).movedim(-1, 1)


def sheet(rows: Sequence[Sequence[Tensor]], titles: Sequence[str], *, zoom: int = 2) -> Image.Image:
    """Pictures [3, H, W] side by side, one row per example, with a title over each column."""
    height, width = rows[0][0].shape[-2:]
    cell = (width * zoom + 6, height * zoom + 6)
    page = Image.new("RGB", (cell[0] * len(titles) + 6, cell[1] * len(rows) + 22), "white")
    draw = ImageDraw.Draw(page)
    for column, title in enumerate(titles):
        draw.text((6 + column * cell[0], 5), title, fill="black")
    for line, pictures in enumerate(rows):
        for column, picture in enumerate(pictures):
            values = (picture.clamp(0, 1) * 255).round().byte().permute(1, 2, 0)
            image = Image.fromarray(np.ascontiguousarray(values.cpu().numpy()))
            enlarged = image.resize((width * zoom, height * zoom), Image.Resampling.NEAREST)
            page.paste(enlarged, (6 + column * cell[0], 22 + line * cell[1]))
    return page
