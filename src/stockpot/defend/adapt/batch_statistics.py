"""BatchNorm with the statistics of the batch at hand, or a mixture with those of training.

Schneider et al. (arXiv:2006.16971): with N pseudo-pictures from training and a batch of n, mean and
variance are N / (N + n) times the known ones plus n / (N + n) times the batch's. N = 0 takes those
of the batch alone, as training does. The variance of a batch is the one that training normalises
by (divided by the count, not by one less), so that N = 0 is no special case.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from stockpot.errors import UserError
from stockpot.models.classifier import Classifier

_AFTER = ("drop", "act")
"""What timm's fused layers do after normalising, in this order."""


class BatchStatistics(nn.Module):
    """A BatchNorm layer that normalises by what it sees."""

    def __init__(self, layer: _BatchNorm, prior: float) -> None:
        super().__init__()
        self.layer = layer
        self.prior = prior
        self.last: tuple[Tensor, Tensor] | None = None
        """Mean and variance by which the last batch was normalised."""
        self.hold = False
        """Whether the last ones are used again, whatever comes."""

    def forward(self, inputs: Tensor) -> Tensor:
        normalised = self._normalised(inputs)
        for name in _AFTER:
            if hasattr(self.layer, name):
                normalised = getattr(self.layer, name)(normalised)
        return normalised

    def _normalised(self, inputs: Tensor) -> Tensor:
        layer = self.layer
        # Their source is a layer with statistics of its own: `mix_statistics` takes no other.
        known_mean, known_variance = cast(tuple[Tensor, Tensor], _known(layer))
        weight, bias, eps = layer.weight, layer.bias, layer.eps
        # One value has no variance; then there is nothing to learn of a batch.
        count = inputs.numel() // inputs.shape[1]
        if self.hold or count < 2:
            mean, variance = self.last or (known_mean, known_variance)
            return F.batch_norm(inputs, mean, variance, weight, bias, eps=eps)
        if self.prior == 0:
            mean, variance = torch.zeros_like(known_mean), torch.ones_like(known_variance)
            found = F.batch_norm(inputs, mean, variance, weight, bias, True, 1.0, eps)
            self.last = mean, variance * ((count - 1) / count)
            return found
        axes = [axis for axis in range(inputs.ndim) if axis != 1]
        share = self.prior / (self.prior + len(inputs))
        mean = share * known_mean + (1 - share) * inputs.mean(axes)
        variance = share * known_variance + (1 - share) * inputs.var(axes, correction=0)
        self.last = mean.detach(), variance.detach()
        shape = [1, -1] + [1] * (inputs.ndim - 2)
        found = (inputs - mean.view(shape)) * (variance.view(shape) + eps).rsqrt()
        return found if weight is None else found * weight.view(shape) + bias.view(shape)


def _known(layer: _BatchNorm) -> tuple[Tensor | None, Tensor | None]:
    return layer.running_mean, layer.running_var


def mix_statistics(model: Classifier, prior: float) -> int:
    """Put `BatchStatistics` in place of every BatchNorm of a model; how many there were."""
    found = 0
    for parent in list(model.modules()):
        if isinstance(parent, BatchStatistics):
            continue
        for name, child in list(parent.named_children()):
            if not isinstance(child, _BatchNorm) or child.running_mean is None:
                continue
            own = type(child).forward is not _BatchNorm.forward
            if own and not all(hasattr(child, each) for each in _AFTER):
                raise UserError(
                    f"{model.origin.source}: expected plain BatchNorm layers to adapt, got "
                    f"{type(child).__name__}, which does more."
                )
            setattr(parent, name, BatchStatistics(child, prior))
            found += 1
    return found
