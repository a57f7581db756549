"""The floor of an attack: as many bare passes as it asked for, of the same run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import stockpot
from parts.watched import now


class Counted:
    """A model that counts the images that it is shown, and those whose gradient is wanted."""

    def __init__(self, network: nn.Module) -> None:
        self.network, self.seen, self.sloped = network, 0, 0

    def __call__(self, pixels: Tensor) -> Tensor:
        self.seen += len(pixels)
        if pixels.requires_grad and torch.is_grad_enabled():
            self.sloped += len(pixels)
        return self.network(pixels)


def share_with_gradient(
    network: nn.Module, images: Tensor, labels: Tensor, **options: Any
) -> float:
    """Of all that an attack asks, the part that has a backward pass; a few images tell it."""
    counted = Counted(network)
    few = max(20, len(images) // 20)
    stockpot.attack(counted, images[:few], labels[:few], check=False, **options)
    return counted.sloped / counted.seen


class Bare(NamedTuple):
    """Seconds of an image in the barest passes, all images in one batch."""

    forward: float
    both: float

    def seconds(self, passes: int, sloped: float) -> float:
        """What so many passes take when that share of them has a gradient."""
        return passes * (sloped * self.both + (1 - sloped) * self.forward)


def bare_passes(network: nn.Module, images: Tensor, repeats: int = 20) -> Bare:
    """The least of some repeats; seconds of the processor on a CPU, of the clock elsewhere."""
    device = images.device.type

    def forward() -> None:
        with torch.inference_mode():
            network(images)

    def both() -> None:
        pixels = images.clone().requires_grad_()
        torch.autograd.grad(network(pixels).sum(), pixels)

    def least(work: Callable[[], None]) -> float:
        taken = []
        for _ in range(repeats):
            begin = now(device)
            work()
            taken.append(now(device) - begin)
        return min(taken) / len(images)

    return Bare(least(forward), least(both))
