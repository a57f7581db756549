"""Which cells of a picture are replaced (random ones, the object, its context), and how: by other
pictures' pixels, or by hiding or dropping their tokens.

Cells are the patches of a transformer, or the positions of a convolutional map. The object is
where the relevance, divided by the picture's largest, lies strictly above a threshold; the context
is the rest. A picture without any relevance has no object and is all context. Where data know
their objects, these may take the place of relevance.

Dropped tokens: random masks leave the same number of patches in every picture, so the others'
tokens are simply not computed. Masks made from relevance leave different numbers; there the patches
are hidden from every query, after which the tokens that decide are what they would be without them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from stockpot.errors import UserError
from stockpot.explain.attention import attending, need_tower
from stockpot.explain.relevance import enlarged, normalised

Mask = Literal["none", "random", "context", "object"]


def object_cells(relevance: Tensor, threshold: float) -> Tensor:
    """The cells that carry the decision, as booleans [images, rows, columns]."""
    return normalised(relevance) > threshold


def true_cells(masks: Tensor, grid: tuple[int, int]) -> Tensor:
    """The share of each cell that lies on the object, of masks [images, H, W]."""
    return F.adaptive_avg_pool2d(masks.float(), grid)


def random_cells(
    shape: tuple[int, int, int], rate: float, generator: Generator, *, fixed: bool
) -> Tensor:
    """Cells drawn at random; `fixed` masks the same number in every picture.

    Otherwise each cell is masked with probability `rate` on its own.
    """
    n, rows, columns = shape
    drawn = torch.rand((n, rows * columns), generator=generator)
    if not fixed:
        return (drawn < rate).view(shape)
    kept = int(rows * columns * (1 - rate))
    masked = drawn.argsort(dim=1).argsort(dim=1) >= kept
    return masked.view(shape)


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


@contextmanager
def dropping(network: nn.Module, masked: Tensor) -> Iterator[None]:
    """Drop masked patches [images, cells] after the positions were added; equal counts only."""
    tower = need_tower(network, "fill=none")
    counts = (~masked).sum(dim=1)
    if not bool((counts == counts[0]).all()):
        raise UserError("dropping tokens needs the same number of patches in every picture.")
    kept = (~masked).nonzero()[:, 1].view(len(masked), -1)

    def gather(_: nn.Module, __: Any, tokens: Tensor) -> Tensor:
        before = tokens.shape[1] - masked.shape[1]
        index = torch.cat(
            [torch.arange(before, device=kept.device).expand(len(kept), -1), kept + before], dim=1
        )
        return tokens.gather(1, index[:, :, None].expand(-1, -1, tokens.shape[2]))

    handle = tower.embeddings.register_forward_hook(gather)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def hiding(network: nn.Module, masked: Tensor) -> Iterator[None]:
    """Hide masked patches [images, cells] from every query of every block."""
    tower = need_tower(network, "fill=none")
    if tower.readout == "mean":
        raise UserError(
            "fill=none with masks from relevance needs a network that decides by a class token or "
            "attention pooling; this one averages all patches.",
            hint="Use fill=single or fill=multi.",
        )
    if tower.readout == "pooling":
        # Without a class token a picture that is all masked would have nothing left to read.
        masked = masked & ~masked.all(dim=1, keepdim=True)
    with attending(network, hidden=masked, keep=False):
        yield
