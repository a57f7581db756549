"""BatchNorm's running statistics when weights are mixed: one rule for every soup and member.

The rule of fusion and seasoning. Statistics are mixed like weights (`mix`; a variance that comes
out not positive, as extrapolation can make it, becomes the members' smallest), or estimated anew
from images (`recompute`), or left as the first member has them (`left`). Whichever it is, it holds
for soups inside and outside the members' hull and for members alone, so that none is compared
after an adaptation that the others went without.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from stockpot.errors import BadParameterError

Rule = Literal["mix", "recompute", "left"]


@dataclass(frozen=True)
class Statistics:
    """What becomes of running statistics, and the images that it may need."""

    rule: Rule = "mix"
    images: Iterable[Tensor] | None = None
    """Pixel batches that can be gone through again and again, for `recompute`."""

    def __post_init__(self) -> None:
        if self.rule == "recompute" and self.images is None:
            raise BadParameterError("bn=recompute: expected images to estimate from, got none.")


def is_variance(name: str) -> bool:
    """Whether a tensor is a running variance."""
    return name.endswith("running_var")


def sound(variance: Tensor, smallest: Tensor) -> Tensor:
    """A mixed variance, with the members' smallest where it is not positive and finite.

    The network would compute NaN with a variance below zero.
    """
    return torch.where(is_sound(variance), variance, smallest.clamp(min=0))


def is_sound(variance: Tensor) -> Tensor:
    """Where a variance is positive and finite."""
    return torch.isfinite(variance) & (variance > 0)


@torch.no_grad()
def recompute_batch_norm(model: nn.Module, batches: Iterable[Tensor]) -> int:
    """Estimate all running statistics anew, in place, as a mean over batches.

    Args:
        model: a network; its mode and its momenta are put back afterwards.
        batches: what the network is called with, on its device.

    Returns:
        The number of BatchNorm layers; 0 leaves the model as it was.
    """
    layers = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    layers = [layer for layer in layers if layer.track_running_stats]
    if not layers:
        return 0
    modes = {module: module.training for module in model.modules()}
    momenta = {layer: layer.momentum for layer in layers}
    model.eval()
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # a plain mean over batches, whatever their number
        layer.train()
    try:
        for batch in batches:
            model(batch)
    finally:
        for layer, momentum in momenta.items():
            layer.momentum = momentum
        for module, mode in modes.items():
            module.training = mode
    return len(layers)
