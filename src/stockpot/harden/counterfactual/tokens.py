"""No fill: the network never sees the masked patches.

Random masks leave the same number of patches in every picture, so the others' tokens are simply
not computed. Masks made from relevance leave different numbers; there the patches are hidden from
every query, after which the tokens that decide are what they would be without them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from stockpot.errors import UserError
from stockpot.explain.attention import attending
from stockpot.explain.towers import need_tower


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
