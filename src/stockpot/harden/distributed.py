"""Training on several devices, one process each, as `torchrun` starts them.

    torchrun --nproc-per-node 4 -m stockpot.cli.main harden adversarial MODEL --data D -o OUT

Every process draws the same batch and takes its share of it; gradients are averaged. So the result
is that of one process with the same batch size, up to the order of sums (and to what batch norms
see: each process its own share). Without `torchrun` there is one process, the first.

Everything random in training follows from a seed and a number, such as that of the step, so that
all processes, and a run that was stopped and goes on, draw the same.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Generator, Tensor, nn

from stockpot.errors import BadParameterError


def workers() -> int:
    """How many processes train together."""
    return dist.get_world_size() if _joined() else 1


def rank() -> int:
    """This process's number among them; 0 when it is alone."""
    return dist.get_rank() if _joined() else 0


def is_first() -> bool:
    """Whether this process is the one that writes files."""
    return rank() == 0


@contextmanager
def together(device: torch.device) -> Iterator[torch.device]:
    """Join the other processes that torchrun started; gives this one's device."""
    if _joined() or int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield device
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield device
    finally:
        dist.destroy_process_group()


def own_share(*batch: Tensor) -> tuple[Tensor, ...]:
    """This process's rows of a batch that all have."""
    if not _joined():
        return batch
    size, rest = divmod(len(batch[0]), workers())
    if rest or not size:
        raise BadParameterError(
            f"batch_size: expected a multiple of the {workers()} processes, got {len(batch[0])}."
        )
    start = rank() * size
    return tuple(part[start : start + size] for part in batch)


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Every process gets the mean of all gradients, in one exchange."""
    if not _joined():
        return
    gradients = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    dist.all_reduce(flat)
    means = torch.split(flat.div_(workers()), [gradient.numel() for gradient in gradients])
    for gradient, mean in zip(gradients, means, strict=True):
        gradient.copy_(mean.view_as(gradient))


def share_buffers(model: nn.Module) -> None:
    """Running statistics become the first process's, so that all score the same model."""
    if _joined():
        for buffer in model.buffers():
            dist.broadcast(buffer, 0)


def wait() -> None:
    """Until every process has come here."""
    if _joined():
        dist.barrier()


def _joined() -> bool:
    return dist.is_available() and dist.is_initialized()


def generator_of(seed: int, number: int, salt: int = 0) -> Generator:
    """A generator on the CPU, the same in every process and on every device."""
    return Generator().manual_seed(_word(seed, number, salt))


@contextmanager
def layers_draw_from(seed: int, step: int, device: torch.device) -> Iterator[None]:
    """Inside, dropout and stochastic depth draw what belongs to this step and process.

    Layers can only draw from torch's global generators. These are lent to the step: seeded for it,
    and afterwards as they were.
    """
    own = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=own):
        word = _word(seed, step, f"layers:{rank()}")
        torch.default_generator.manual_seed(word)
        if own:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(word)
        yield


def _word(*parts: object) -> int:
    text = hashlib.sha256(":".join(map(str, parts)).encode()).digest()
    return int.from_bytes(text[:7], "big")
