"""Targets that are not one class: label smoothing, mixup and CutMix of a batch."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from stockpot.harden.augment import cutmix as paste
from stockpot.harden.augment import mixup as blend
from stockpot.harden.objective import Step


def mixed(step: Step, mixup: float, cutmix: float) -> tuple[Tensor, Tensor]:
    """Pixels and soft targets; with both alphas every other batch is blended, the rest pasted."""
    classes = len(step.model.classes)
    if not mixup and not cutmix:
        return step.pixels, F.one_hot(step.labels, classes).to(step.pixels.dtype)
    whole = step.whole  # a partner may be another process's
    targets = F.one_hot(whole.labels, classes).to(whole.pixels.dtype)
    use_blend = bool(mixup) and (not cutmix or step.number % 2 == 0)
    change, alpha = (blend, mixup) if use_blend else (paste, cutmix)
    pixels, targets = change(whole.pixels, targets, step.generator, alpha)
    return step.own(pixels), step.own(targets)


def smoothed(targets: Tensor, label_smoothing: float) -> Tensor:
    """A share of every target spread over all classes."""
    return (1 - label_smoothing) * targets + label_smoothing / targets.shape[1]
