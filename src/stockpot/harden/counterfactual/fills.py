"""Putting other pictures' pixels where a picture is masked."""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.explain.relevance import enlarged


def filled(pixels: Tensor, pool: Tensor, masked: Tensor, partners: Tensor) -> Tensor:
    """Pixels with their masked cells replaced by the same place of their partners.

    Args:
        pixels: [images, 3, H, W].
        pool: [pool, 3, H, W], what partners count in.
        masked: booleans [images, rows, columns].
        partners: [images, 1] or [images, rows x columns].
    """
    height, width = pixels.shape[-2:]
    where = enlarged(masked, (height, width))[:, None]
    if partners.shape[1] == 1:
        return torch.where(where, pool[partners[:, 0]], pixels)
    rows, columns = masked.shape[1:]
    down = _cell(height, rows, pixels.device)
    across = _cell(width, columns, pixels.device)
    cell = down[:, None] * columns + across[None, :]
    # Each pixel reads its own place in the picture that its cell drew.
    place = torch.arange(height * width, device=pixels.device).view(height, width)
    flat = partners[:, cell] * (height * width) + place
    sources = pool.movedim(1, -1).reshape(-1, pool.shape[1])[flat.flatten(1)]
    sources = sources.view(len(pixels), height, width, -1).movedim(-1, 1)
    return torch.where(where, sources, pixels)


def _cell(pixels: int, cells: int, device: torch.device) -> Tensor:
    """For each pixel along an axis the cell it lies in, as `enlarged` sees it."""
    middle = torch.arange(pixels, device=device) + 0.5
    return (middle * cells / pixels).floor().long().clamp(max=cells - 1)
