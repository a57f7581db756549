"""Ways to make a forward pass, by their steps, and how long one takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from stockpot.models.forward.ends import Kernel
from stockpot.models.forward.fused.tokens import has_tower
from stockpot.models.forward.options import Forward
from stockpot.models.forward.packed import can_pack
from stockpot.models.forward.packed_convolutions import can_pack_convolutions

Steps = tuple[str, ...]

KERNELS: tuple[Kernel, ...] = ("cudnn", "triton", "torch")
TOLD = ("compiled", "bf16", "tf32")
"""Steps whose loss a reader must hear of."""
_COPIED = ("nhwc", "bf16", "joined", "tokens", "packed")
"""Steps that change the weights of a copy."""
_REPLAYS = 3
"""By which ways are compared that differ in their kernels alone."""


def groups(model: nn.Module, forward: Forward, *, records: bool) -> Iterator[list[Steps]]:
    """From the fastest ways to the plainest, beside each other where none is always faster.

    Below all of them is the model itself.
    """
    copied: Steps = ("nhwc",) if _has(model, nn.Conv2d, 2) else ()
    copied += ("folded",) if copied and _has(model, nn.BatchNorm2d, 1) else ()
    if forward.precision != "fp32":
        copied = (*copied, forward.precision)
    if forward.compile:
        yield [(*copied, "compiled", "graph") if records else (*copied, "compiled")]
    if records and "nhwc" in copied:
        joined = [(*copied, "joined", kernel, "graph") for kernel in KERNELS]
        # In half precision the first is the fastest, and to make the others takes a second.
        yield from ([way] for way in joined) if forward.precision == "bf16" else [joined]
    if records and forward.precision != "fp32" and has_tower(model):
        yield [(*copied, "tokens", "triton", "graph")]
    if records:
        yield [(*copied, "graph")]
    full = forward.precision == "fp32"
    asked = full and not records and not torch.is_grad_enabled()
    if asked and (can_pack(model) or (copied and can_pack_convolutions(model))):
        yield [(*copied, "packed")]
    if copied:
        yield [copied]
    if len(copied) > 1 and forward.precision != "fp32":
        yield [(forward.precision,)]


def named(steps: Steps) -> str:
    """What of a way was chosen by somebody."""
    return ", ".join(step for step in steps if step in TOLD)


def wanted(steps: Steps) -> str:
    """What is done to the weights; ways that agree in it use one copy."""
    return "+".join(step for step in steps if step in _COPIED)


def seconds(run: Callable[[Tensor], Tensor], pixels: Tensor) -> float:
    """Of some passes after each other."""
    _wait(pixels)
    start = time.perf_counter()
    for _ in range(_REPLAYS):
        run(pixels)
    _wait(pixels)
    return time.perf_counter() - start


def _wait(pixels: Tensor) -> None:
    if pixels.is_cuda:
        torch.cuda.synchronize(pixels.device)


def _has(model: nn.Module, kind: type[nn.Module], least: int) -> bool:
    """Whether there are so many layers; one convolution only cuts a picture into patches."""
    return sum(isinstance(module, kind) for module in model.modules()) >= least
