"""Which rows of a batch are a process's own, and all rows again where a method needs them.

Rows go to processes in order, in stretches whose lengths differ by one at most; which picture goes
where follows from the seed, the step and the number of processes alone.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from stockpot.errors import BadParameterError
from stockpot.harden.many.processes import joined, rank, workers


def own_rows(size: int) -> slice:
    """This process's rows of a batch of this size."""
    if not joined():
        return slice(0, size)
    if size < workers():
        raise BadParameterError(
            f"batch_size: expected at least one image for each of the {workers()} processes, "
            f"got {size}."
        )
    return slice(rank() * size // workers(), (rank() + 1) * size // workers())


def weight_of(size: int) -> float:
    """How much the mean over this process's rows counts among those of all: 1 on average."""
    own = own_rows(size)
    rows: int = own.stop - own.start
    return rows * workers() / size


def gathered(own: Tensor, size: int) -> Tensor:
    """The rows of all processes, in order, from each one's own; gradients go back to their rows.

    Args:
        own: this process's rows.
        size: how many rows there are in all.
    """
    if not joined():
        return own
    found: Tensor = _Gathered.apply(own, size)  # type: ignore[no-untyped-call]
    return found


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, own: Tensor, size: int) -> Tensor:
        # A sum of which all but one addend are zero: exact, and rows may be dealt out unevenly.
        kept = own.to(torch.uint8) if own.dtype == torch.bool else own
        whole = kept.new_zeros(size, *own.shape[1:])
        whole[own_rows(size)] = kept
        dist.all_reduce(whole)
        return whole.to(own.dtype)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        # Every process's loss depends on these rows.
        return summed_gradient(gradient)[own_rows(len(gradient))], None


def mean_of_all(own: Tensor, rows: int) -> Tensor:
    """The mean over the rows of all processes, of this process's mean over so many; no gradient."""
    if not joined():
        return own
    total = summed_gradient(torch.stack([own.detach() * rows, own.new_tensor(float(rows))]))
    return total[0] / total[1]


def summed_gradient(gradient: Tensor) -> Tensor:
    """The same of all processes, added."""
    whole = gradient.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(whole)
    return whole


class Summed(torch.autograd.Function):
    """Added over all processes, forwards and backwards."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, own: Tensor) -> Tensor:
        return summed_gradient(own)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> Tensor:
        return summed_gradient(gradient)


def summed(own: Tensor) -> Tensor:
    """A tensor added over all processes; gradients too."""
    if not joined():
        return own
    found: Tensor = Summed.apply(own)  # type: ignore[no-untyped-call]
    return found
