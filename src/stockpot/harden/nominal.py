"""Ordinary supervised training, the baseline of every hardening method."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from stockpot.harden import hardeners
from stockpot.harden.mixing import mixed
from stockpot.harden.objective import Objective, Step
from stockpot.types import NonNegative, Part


@dataclass(frozen=True)
class CrossEntropy:
    """The loss of clean images."""

    label_smoothing: float = 0.0
    same_every_step = True

    def __call__(self, step: Step) -> Tensor:
        logits = step.model(step.pixels)
        return F.cross_entropy(logits, step.labels, label_smoothing=self.label_smoothing)


@hardeners.register("nominal")
def nominal(
    *, label_smoothing: Part = 0.0, mixup: NonNegative = 0.0, cutmix: NonNegative = 0.0
) -> Objective:
    """Cross-entropy on clean images, with label smoothing, mixup and CutMix as options.

    Args:
        label_smoothing: the share of each target that is spread over all classes.
        mixup: alpha of the Beta distribution of blending shares; 0 does not blend.
        cutmix: alpha of the Beta distribution of pasted areas; 0 does not paste. With both,
            every other batch is blended and every other one pasted.
    """

    if not mixup and not cutmix:
        return CrossEntropy(label_smoothing)

    def objective(step: Step) -> Tensor:
        pixels, targets = mixed(step, mixup, cutmix)
        return F.cross_entropy(step.model(pixels), targets, label_smoothing=label_smoothing)

    return objective
