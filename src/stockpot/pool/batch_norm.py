"""BatchNorm's running statistics when weights are mixed: mixed too, kept sound, or estimated anew.

The one rule of fusion and seasoning. Statistics are mixed like weights. A variance that comes out
not positive, as extrapolation can make it, becomes the members' smallest; others stay as they are.
Where images are given, statistics can be estimated from them instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

Rule = Literal["mix", "recompute", "extrapolated"]


@dataclass(frozen=True)
class Statistics:
    """What becomes of running statistics, and the images that it may need."""

    rule: Rule = "extrapolated"
    """`mix` them like weights; `recompute` them for every soup and member, so that all are treated
    alike; or recompute them for soups with a negative weight only (`extrapolated`)."""
    images: Sequence[Tensor] = ()
    """Pixel batches; without any, statistics are mixed."""

    def anew(self, weights: Tensor) -> bool:
        """Whether a soup with these weights gets statistics of its own."""
        if not len(self.images) or self.rule == "mix":
            return False
        return self.rule == "recompute" or bool((weights < 0).any())


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
