"""BatchNorm running statistics: kept sound in a fused model, or estimated anew from images."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from stockpot.fuse.fuser import Slab


def sound_variance(slab: Slab, variance: Tensor) -> Tensor:
    """A fused running variance, with the members' smallest where it came out not positive.

    Extrapolation can push a variance below zero, and the network then computes NaN.
    """
    broken = ~(torch.isfinite(variance) & (variance > 0))
    if not broken.any():
        return variance
    members = slab.members()
    smallest = next(members).clone()
    for values in members:
        smallest = torch.minimum(smallest, values)
    return torch.where(broken, smallest.clamp(min=0), variance)


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
