"""What outputs alone give away."""

from __future__ import annotations

from torch import Tensor

from stockpot.attack.victim import Victim


def is_randomised(victim: Victim, images: Tensor) -> bool:
    """Whether a second look at the same few images differs by more than rounding."""
    few = images[:32]
    first, second = victim.logits(few), victim.logits(few)
    scale = first.abs().amax(dim=1, keepdim=True).clamp(min=1e-12)
    return bool(((first - second).abs() / scale).amax() > 1e-4) if len(few) else False


def is_softmax(logits: Tensor) -> bool:
    """Whether every row looks like a probability distribution."""
    if not len(logits):
        return False
    sums = (logits.sum(dim=1) - 1).abs().amax()
    return bool(logits.min() >= 0) and bool(logits.max() <= 1) and bool(sums < 1e-3)
