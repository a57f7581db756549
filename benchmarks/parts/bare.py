"""Bare forward passes: the floor of whatever asks networks about pictures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from parts.watched import now

Result = TypeVar("Result")


class Seconds(NamedTuple):
    """What some work took."""

    clock: float
    """By which results tell their stages."""
    spent: float
    """Of the processor, which others share; of the clock where a GPU does the work."""

    def times(self, factor: float) -> Seconds:
        """What so much more work takes."""
        return Seconds(factor * self.clock, factor * self.spent)


def timed(work: Callable[[], Result], device: str) -> tuple[Seconds, Result]:
    """What some work takes until the device has done it, and what it gives."""
    begin, clock = now(device), time.perf_counter()
    result = work()
    spent = now(device) - begin
    return Seconds(time.perf_counter() - clock, spent), result


def least(work: Callable[[], object], device: str, rounds: int = 3) -> Seconds:
    """The least of some rounds, after one that does not count: a busy machine only adds."""
    work()
    found = [timed(work, device)[0] for _ in range(rounds)]
    return Seconds(*(min(column) for column in zip(*found, strict=True)))


def asked(model: Callable[[Tensor], Tensor], batches: Iterable[Tensor]) -> Tensor:
    """A model's answers to all batches, one after the other, and nothing else."""
    with torch.inference_mode():
        return torch.cat([model(pixels) for pixels in batches])


class Bare(nn.Module):
    """A network from bytes of pixels to logits in a precision, as fast as torch alone has it.

    Whether products are made in TensorFloat-32 is a switch of the process, for who asks.
    """

    def __init__(self, network: nn.Module, precision: str) -> None:
        super().__init__()
        convolutions = sum(isinstance(module, nn.Conv2d) for module in network.modules())
        # One convolution only cuts a picture into patches.
        self.layout = torch.channels_last if convolutions > 1 else torch.contiguous_format
        self.kind = torch.bfloat16 if precision == "bf16" else torch.float32
        self.network = network.to(self.kind).to(memory_format=self.layout)  # type: ignore[call-overload]

    def forward(self, pixels: Tensor) -> Tensor:
        seen = (pixels.to(self.kind) / 255 - 0.45) / 0.225
        logits: Tensor = self.network(seen.contiguous(memory_format=self.layout))
        return logits
