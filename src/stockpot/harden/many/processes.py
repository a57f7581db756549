"""Training on several devices, one process each, as `torchrun` starts them.

    torchrun --nproc-per-node 4 -m stockpot harden adversarial MODEL --data D -o OUT

Every process draws the same batch and takes its rows of it (`shares.py`); gradients are averaged,
and what a layer does with a whole batch it does with that of all processes (`layers.py`). So the
result is that of one process with the same batch size, up to the order of sums. Without `torchrun`
there is one process, the first. The first process alone writes and tells.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from stockpot.errors import UserError

T = TypeVar("T")
_BUCKET = 2**24
"""Values that are exchanged at a time: as a whole, gradients would take their memory twice."""


def joined() -> bool:
    """Whether this process trains with others."""
    return dist.is_available() and dist.is_initialized()


def workers() -> int:
    """How many processes train together."""
    return dist.get_world_size() if joined() else 1


def rank() -> int:
    """This process's number among them; 0 when it is alone."""
    return dist.get_rank() if joined() else 0


def is_first() -> bool:
    """Whether this process is the one that writes and tells, also before it has met the others."""
    return rank() == 0 if joined() else os.environ.get("RANK", "0") == "0"


@contextmanager
def together(device: torch.device) -> Iterator[torch.device]:
    """Join the other processes that torchrun started; gives this one's device."""
    if joined() or int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield device
        return
    backend = "gloo"
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl"  # what is agreed upon does not wait for a GPU
    try:
        _join(backend)
        try:
            yield device
        finally:
            dist.destroy_process_group()
    except RuntimeError as problem:
        if isinstance(problem, dist.DistError) or "gloo" in str(problem):
            raise UserError(
                f"process {os.environ.get('RANK')}: another process of this training was lost.",
                hint="Start it again: it goes on from the state saved last, and under torchrun "
                "--max-restarts N it does so by itself.",
            ) from problem
        raise


def _join(backend: str) -> None:
    store, number, count = next(dist.rendezvous("env://"))  # type: ignore[attr-defined]
    # A restart may find the store of the try before, in which addresses are no longer true.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = dist.PrefixStore(f"stockpot-{attempt}", store)  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=store, rank=number, world_size=count)


def average_gradients(parameters: Iterable[nn.Parameter], loss: Tensor) -> Tensor:
    """Every process gets the mean of all gradients; gives the mean of the losses.

    Gradients of a model in shards are averaged already, as its backward pass ends.
    """
    if not joined():
        return loss
    own = [p.grad for p in parameters if p.grad is not None and type(p.data) is Tensor]
    mean = loss.detach().float().reshape(1).clone()
    for bucket in _buckets([mean, *own]):
        flat = torch.cat([values.reshape(-1).to(bucket[0].dtype) for values in bucket])
        dist.all_reduce(flat)
        parts = torch.split(flat.div_(workers()), [values.numel() for values in bucket])
        for values, part in zip(bucket, parts, strict=True):
            values.copy_(part.view_as(values))
    return mean[0]


def _buckets(tensors: list[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    size = 0
    for tensor in tensors:
        if bucket and (size + tensor.numel() > _BUCKET or tensor.dtype != bucket[0].dtype):
            yield bucket
            bucket, size = [], 0
        bucket.append(tensor)
        size += tensor.numel()
    yield bucket


def any_of(*flags: bool) -> list[bool]:
    """Of each flag, whether it is set in any process. To be called by all at the same place."""
    if not joined():
        return list(flags)
    found = torch.tensor(flags, dtype=torch.int32)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return [bool(flag) for flag in found.tolist()]


def sum_of(*counts: int) -> list[int]:
    """Each count, summed over all processes."""
    if not joined():
        return list(counts)
    found = torch.tensor(counts, dtype=torch.int64)
    dist.all_reduce(found)
    return [int(count) for count in found.tolist()]


def from_first(value: T) -> T:
    """What the first process has; the others' values are not looked at."""
    if not joined():
        return value
    held = [value if is_first() else None]
    dist.broadcast_object_list(held, 0, device=torch.device("cpu"))
    return held[0]  # type: ignore[return-value]


@torch.no_grad()
def share_weights(model: nn.Module) -> None:
    """Weights and running statistics become the first process's.

    What is computed before the first step, such as a linear probe, may differ between two kinds of
    device by rounding.
    """
    if joined():
        for tensor in [*model.parameters(), *model.buffers()]:
            if type(tensor.data) is Tensor:  # shards are parts of the same file
                dist.broadcast(tensor.data, 0)


def wait() -> None:
    """Until every process has come here."""
    if joined():
        dist.barrier()
