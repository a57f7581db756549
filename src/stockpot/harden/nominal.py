"""Ordinary supervised training, the baseline of every hardening method."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from stockpot.errors import BadParameterError
from stockpot.harden import hardeners
from stockpot.harden.augment import cutmix as paste
from stockpot.harden.augment import mixup as blend
from stockpot.harden.loop import Objective, Step


@hardeners.register("nominal")
def nominal(*, label_smoothing: float = 0.0, mixup: float = 0.0, cutmix: float = 0.0) -> Objective:
    """Cross-entropy on clean images, with label smoothing, mixup and CutMix as options.

    Args:
        label_smoothing: the share of each target that is spread over all classes.
        mixup: alpha of the Beta distribution of blending shares; 0 does not blend.
        cutmix: alpha of the Beta distribution of pasted areas; 0 does not paste. With both,
            every other batch is blended and every other one pasted.
    """
    if not 0 <= label_smoothing < 1 or mixup < 0 or cutmix < 0:
        raise BadParameterError(
            "nominal: expected 0 <= label_smoothing < 1, mixup >= 0 and cutmix >= 0, "
            f"got {label_smoothing}, {mixup} and {cutmix}."
        )

    def objective(step: Step) -> Tensor:
        pixels, classes = step.pixels, len(step.model.classes)
        if not mixup and not cutmix:
            logits = step.model(pixels)
            return F.cross_entropy(logits, step.labels, label_smoothing=label_smoothing)
        targets = F.one_hot(step.labels, classes).to(pixels.dtype)
        use_blend = bool(mixup) and (not cutmix or step.number % 2 == 0)
        change, alpha = (blend, mixup) if use_blend else (paste, cutmix)
        pixels, targets = change(pixels, targets, step.generator, alpha)
        return F.cross_entropy(step.model(pixels), targets, label_smoothing=label_smoothing)

    return objective
