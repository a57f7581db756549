"""Grad-CAM for convolutional networks (Selvaraju et al., arXiv:1610.02391).

The map is the positive part of the channels' weighted sum; a channel's weight is the mean
gradient of the score over its positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from stockpot.errors import UserError

SMALLEST = 4
"""Maps with fewer rows or columns say too little about where; an earlier one is taken."""


@contextmanager
def watching_maps(network: nn.Module) -> Iterator[list[Tensor]]:
    """Keep the deepest feature map of at least 4 x 4 that a forward pass makes (else the deepest).

    Modules are watched as they finish, so a residual stage counts after the layers inside it.
    """
    kept: list[Tensor] = []

    def keep(module: nn.Module, _: Any, output: Any) -> None:
        # Linear layers of ConvNeXt work with channels last; their outputs are no maps.
        if not isinstance(output, Tensor) or output.ndim != 4 or isinstance(module, nn.Linear):
            return
        side = min(output.shape[-2:])
        if side > 1 and (not kept or side >= min(SMALLEST, min(kept[-1].shape[-2:]))):
            kept[:] = [output]

    handles = [module.register_forward_hook(keep) for module in network.modules()]
    try:
        yield kept
    finally:
        for handle in handles:
            handle.remove()


def grad_cam(maps: list[Tensor], score: Tensor) -> Tensor:
    """Non-negative relevance of every position, as [images, rows, columns]."""
    if not maps:
        raise UserError(
            "Grad-CAM found no feature map with rows and columns in this network.",
            hint="It needs a convolutional network.",
        )
    (gradient,) = torch.autograd.grad(score, [maps[0]], retain_graph=True)
    weights = gradient.float().mean(dim=(2, 3), keepdim=True)
    return (weights * maps[0].detach().float()).sum(dim=1).clamp(min=0)
