"""What moves the weights: the optimiser and its rate over a run, the average of weights,
batch norms that look without remembering, and the layout on a GPU."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Literal

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from stockpot.types import Check, Count


def make_optimiser(
    parameters: Iterable[nn.Parameter],
    name: str,
    lr: float,
    weight_decay: float,
    momentum: float,
    *,
    betas: tuple[float, float] = (0.9, 0.999),
    decay_norms: bool = False,
) -> torch.optim.Optimizer:
    """AdamW, or SGD with Nesterov momentum; biases and norms do not decay unless told."""
    learned = [p for p in parameters if p.requires_grad]
    groups = [
        {"params": [p for p in learned if p.ndim > 1], "weight_decay": weight_decay},
        {
            "params": [p for p in learned if p.ndim <= 1],
            "weight_decay": weight_decay if decay_norms else 0.0,
        },
    ]
    if name == "sgd":
        return torch.optim.SGD(groups, lr=lr, momentum=momentum, nesterov=momentum > 0)
    return torch.optim.AdamW(groups, lr=lr, betas=betas)


def set_rate(
    optimiser: torch.optim.Optimizer,
    lr: float,
    schedule: Schedule,
    step: int,
    total: int,
    warmup: int,
    drops: Sequence[int] = (),
    gamma: float = 0.1,
) -> None:
    """Set the learning rate of a step, and the first beta where the schedule moves it."""
    rate = lr * factor(schedule, step, total, warmup, drops, gamma)
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


Schedule = Literal["cosine", "one_cycle", "cosine_cycle", "constant", "step"]
Milestones = Annotated[
    tuple[Count, ...], Check(lambda value: (value,) if isinstance(value, int) else value)
]
"""Epochs, one or several."""

# What torch's OneCycleLR starts and ends with, and how far it moves AdamW's first beta.
_START, _END = 1 / 25, 1 / 25e4
_HIGH_BETA, _LOW_BETA = 0.95, 0.85


def factor(
    schedule: Schedule,
    step: int,
    total: int,
    warmup: int,
    drops: Sequence[int] = (),
    gamma: float = 0.1,
) -> float:
    """The share of the peak learning rate at a step (0 is the first).

    `cosine`, `constant` and `step` rise linearly over `warmup` steps; `step` is multiplied by
    `gamma` from each of the steps `drops` on; `one_cycle` rises linearly to its
    peak at two fifths of the run and falls linearly to zero; `cosine_cycle` rises along a cosine
    from a 25th of the peak over `warmup` steps and falls along one to almost nothing.
    """
    if schedule == "cosine_cycle":
        rising, share = _phase(step, total, warmup)
        return _between(_START, 1.0, share) if rising else _between(1.0, _END, share)
    if schedule == "one_cycle":
        peak = max(1.0, 0.4 * total)
        return (step + 1) / peak if step < peak else max(0.0, (total - step) / (total - peak))
    if step < warmup:
        return (step + 1) / warmup
    if schedule == "constant":
        return 1.0
    if schedule == "step":
        return float(gamma ** sum(step >= drop for drop in drops))
    progress = (step - warmup) / max(1, total - warmup)
    return 0.5 * (1 + math.cos(math.pi * progress))


def first_beta(schedule: Schedule, step: int, total: int, warmup: int) -> float | None:
    """AdamW's first beta at a step, where the schedule moves it: low when the rate is high."""
    if schedule != "cosine_cycle":
        return None
    rising, share = _phase(step, total, warmup)
    ends = (_HIGH_BETA, _LOW_BETA) if rising else (_LOW_BETA, _HIGH_BETA)
    return _between(*ends, share)


def _phase(step: int, total: int, warmup: int) -> tuple[bool, float]:
    """Whether the rate still rises, and the share of that phase that is over."""
    peak = max(warmup - 1, 0)
    if step < peak:
        return True, step / peak
    return False, (step - peak) / max(1, total - 1 - peak)


def _between(start: float, end: float, share: float) -> float:
    return end + (start - end) / 2 * (1 + math.cos(math.pi * share))


@contextmanager
def apart(model: nn.Module) -> Iterator[None]:
    """Batch norms use the batch's statistics and do not remember them."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    kept = [(norm, norm.track_running_stats) for norm in norms]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm, tracked in kept:
            norm.track_running_stats = tracked
