"""What moves the weights: the optimiser, the average of weights, and the layout on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from stockpot.harden.schedule import Schedule, factor, first_beta


def make_optimiser(
    model: nn.Module, name: str, lr: float, weight_decay: float, momentum: float
) -> torch.optim.Optimizer:
    """AdamW, or SGD with Nesterov momentum; biases and norms do not decay."""
    weights = [p for p in model.parameters() if p.requires_grad and p.ndim > 1]
    spared = [p for p in model.parameters() if p.requires_grad and p.ndim <= 1]
    groups = [
        {"params": weights, "weight_decay": weight_decay},
        {"params": spared, "weight_decay": 0.0},
    ]
    if name == "sgd":
        return torch.optim.SGD(groups, lr=lr, momentum=momentum, nesterov=momentum > 0)
    return torch.optim.AdamW(groups, lr=lr)


def set_rate(
    optimiser: torch.optim.Optimizer,
    lr: float,
    schedule: Schedule,
    step: int,
    total: int,
    warmup: int,
) -> None:
    """Set the learning rate of a step, and the first beta where the schedule moves it."""
    rate = lr * factor(schedule, step, total, warmup)
    beta = first_beta(schedule, step, total, warmup)
    for group in optimiser.param_groups:
        group["lr"] = rate
        if beta is not None and "betas" in group:
            group["betas"] = (beta, group["betas"][1])


def follow(averaged: nn.Module, model: nn.Module, decay: float) -> None:
    """Move an exponential average of the weights towards the model."""
    with torch.no_grad():
        own = model.state_dict()
        moving, towards = [], []
        for name, tensor in averaged.state_dict().items():
            if tensor.is_floating_point():
                moving.append(tensor)
                towards.append(own[name])
            else:
                tensor.copy_(own[name])
        # All at once: on a GPU, a launch for each tensor takes longer than moving them.
        torch._foreach_lerp_(moving, towards, 1 - decay)


@contextmanager
def fast_layout(model: nn.Module, device: torch.device) -> Iterator[None]:
    """On a GPU, filters in NHWC order and the fastest convolutions; plain order again afterwards.

    Tensor cores read NHWC; in the usual order every convolution would reorder its input first.
    """
    if device.type != "cuda":
        yield
        return
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    searched, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = searched
        model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
