"""Floating-point operations of a forward pass; a multiplication and an addition are two."""

from __future__ import annotations

from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from stockpot.models.classifier import Classifier, evaluating


def flops_of(model: Classifier, images: Tensor) -> int:
    """What the model computes for these images, in evaluation mode."""
    # Fused attention hides its products from the counter on some devices; plain one does not.
    with (
        evaluating(model),
        sdpa_kernel(SDPBackend.MATH),
        FlopCounterMode(display=False) as counter,
    ):
        model(images)
    return int(counter.get_total_flops())
