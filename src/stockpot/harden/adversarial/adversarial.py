"""Adversarial training: learn from the worst image near each image (arXiv:1706.06083)."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from stockpot.attack.threat import Eps, Threat, threat
from stockpot.harden import hardeners
from stockpot.harden.adversarial.worst import worst
from stockpot.harden.mixing import mixed, smoothed
from stockpot.harden.objective import Objective, Step
from stockpot.types import Fraction01, Natural, NonNegative, Norm, Part


@dataclass(frozen=True)
class WorstImages:
    """The loss of the worst image near each image, and of some share that of the image itself."""

    ball: Threat
    steps: int
    clean: float
    label_smoothing: float
    mixup: float
    cutmix: float

    @property
    def same_every_step(self) -> bool:
        """The search begins at the image and draws nothing; blending and pasting do."""
        return not (self.mixup or self.cutmix)

    def __call__(self, step: Step) -> Tensor:
        pixels, targets = mixed(step, self.mixup, self.cutmix)
        targets = smoothed(targets, self.label_smoothing)
        is_soft = bool(self.label_smoothing or self.mixup or self.cutmix)
        soft = targets if is_soft else None
        found = worst(step, self.ball, self.steps, pixels=pixels, soft=soft)
        loss = F.cross_entropy(step.model(found.images), targets)
        if self.clean:
            unchanged = F.cross_entropy(step.model(pixels), targets)
            loss = self.clean * unchanged + (1 - self.clean) * loss
        return loss


@hardeners.register("adversarial", paper="arXiv:1706.06083")
def adversarial(
    *,
    norm: Norm = "linf",
    eps: Eps = "8/255",
    steps: Natural = 10,
    clean: Fraction01 = 0.0,
    label_smoothing: Part = 0.0,
    mixup: NonNegative = 0.0,
    cutmix: NonNegative = 0.0,
) -> Objective:
    """Cross-entropy on the worst image that APGD finds within a ball around each image.

    Args:
        norm: `linf`, `l2` or `l1`.
        eps: the radius in pixel units; a number or text such as `8/255`.
        steps: of the attack; 10 for small images, 2 (20 in l_1) is usual for large ones.
        clean: the share of the loss on clean images; 0 trains on worst images only.
        label_smoothing: the share of each target that is spread over all classes.
        mixup: alpha of the Beta distribution of blending shares; 0 does not blend.
        cutmix: alpha of the Beta distribution of pasted areas; 0 does not paste.
    """
    return WorstImages(threat(norm, eps), steps, clean, label_smoothing, mixup, cutmix)
