"""A network through `torch.compile`, for one number of images."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn


def compiled(network: nn.Module, size: int) -> Callable[[Tensor], Tensor]:
    """Every new number of images would be compiled anew, so a short batch is filled up."""
    run = torch.compile(network, dynamic=False)

    def filled(pixels: Tensor) -> Tensor:
        rows = len(pixels)
        # A tensor of its own: views of others would be compiled for apart.
        rest = pixels[-1:].expand(size - rows, *pixels.shape[1:])
        with _without_limit():
            logits: Tensor = run(torch.cat([pixels, rest]))
        return logits[:rows]

    return filled


def _without_limit() -> AbstractContextManager[None]:
    """The limit counts all models of a process, and beyond it nothing would be compiled."""
    from torch._dynamo import config

    return config.patch(recompile_limit=1 << 16, accumulated_recompile_limit=1 << 16)  # type: ignore[no-any-return]
