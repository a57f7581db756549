"""Stability training: say the same about an image and its noisy copy (arXiv:1604.04326)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.harden import hardeners
from stockpot.harden.objective import Objective, Step
from stockpot.types import NonNegative


@hardeners.register("stability", paper="arXiv:1604.04326", holds=("gaussian_noise",))
def stability(*, noise: NonNegative = 0.05, weight: NonNegative = 0.05) -> Objective:
    """Cross-entropy on clean images plus that of noisy predictions against clean ones.

    Args:
        noise: half the width of the uniform noise added to every pixel value.
        weight: of the stability term.
    """

    def objective(step: Step) -> Tensor:
        drawn = torch.rand(step.whole.pixels.shape, generator=step.generator)
        noisy = (step.pixels + noise * (2 * step.own(drawn).to(step.pixels) - 1)).clamp(0, 1)
        clean, other = step.model(step.pixels), step.model(noisy)
        gap = F.cross_entropy(other, clean.softmax(dim=1))
        return F.cross_entropy(clean, step.labels) + weight * gap

    return objective
