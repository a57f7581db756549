"""Task arithmetic in the trust region: leave out weights in conflict (Sun, arXiv:2501.15065)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from stockpot.checkpoints.layouts import is_batch_norm_statistic, plain_name
from stockpot.errors import BadParameterError
from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, StagedFuser, Stages, TensorFuser
from stockpot.fuse.learning.learner import DataFuser, Learned
from stockpot.fuse.learning.memory import Held
from stockpot.fuse.learning.task_pool import Task, TaskPool
from stockpot.fuse.sparse.combine import add_up
from stockpot.fuse.sparse.select import TABLE, order_statistics
from stockpot.types import Count, Fraction01, Seed

_TOGETHER = 32
"""Images of one forward pass; each has a backward pass of its own."""


@fusers.register("tatr", paper="arXiv:2501.15065", needs_base=True, learns=True, symmetric=True)
def tatr(
    *,
    scale: float = 0.3,
    density: Fraction01 = 0.99,
    gradients: Literal["data", "changes"] = "data",
    examples: Count = 128,
    seed: Seed = 0,
) -> DataFuser | StagedFuser:
    """Task arithmetic without the weights whose changes for one task move the loss of another.

    A weight's conflict is the sum over pairs of tasks i != j of |g_i| |tau_j|, g_i the gradient of
    task i's loss at the base, its size averaged over labelled images. Without data the changes
    themselves stand for the gradients. Weights from the quantile `density` on keep the base's
    value.

    Args:
        scale: multiplies the summed change before it is added to the base.
        density: the share of all weights that is kept, those of least conflict.
        gradients: from labelled images of every task (data), or the changes in their place, which
            needs none (changes).
        examples: labelled images of each task.
        seed: of the choice of images.
    """
    if gradients == "changes":
        return _streamed(scale, density)

    def learn(pool: TaskPool) -> Learned:
        if not pool.tasks:
            raise BadParameterError(
                "tatr: expected one labelled dataset per member, got none.",
                hint="Give tasks=[...] (--task), or gradients=changes, which needs none.",
            )
        tasks = pool.need_tasks("tatr")
        pool.load_base()
        numbers = [n for n, name in enumerate(pool.names) if not is_batch_norm_statistic(name)]
        conflict = torch.zeros_like(pool.flat)
        total = pool.deltas.abs().sum(dim=0)
        for index, task in enumerate(tasks):
            pool.progress("measuring gradients", index, len(tasks))
            conflict += _sizes(pool, task, examples, seed) * (total - pool.deltas[index].abs())
        values = torch.cat([conflict[pool.spans[number]] for number in numbers])
        limit = values.kthvalue(_rank(len(values), density)).values
        kept = {
            f"kept.{plain_name(pool.names[n])}": (conflict[pool.spans[n]] < limit).cpu()
            for n in numbers
        }
        return Learned(kept, {"examples": examples, "density": density})

    def fuser(learned: Learned) -> TensorFuser:
        def merge(slab: Slab) -> Tensor:
            kept = learned.tensors.get(f"kept.{plain_name(slab.name)}")
            if kept is None:  # statistics, which others mix
                return slab.base
            end = len(kept) if slab.stop is None else slab.stop
            return _masked(slab, kept[slab.start : end].to(slab.base.device), scale)

        return TensorFuser(merge, elementwise=True)

    return DataFuser(learn, fuser, (Held(images=1, copies=5),))


def _streamed(scale: float, density: float) -> StagedFuser:
    """With the changes in the place of gradients nothing has to be run."""
    conflicts = _Conflicts()

    def stages() -> Stages:
        ((limit,), *_) = yield from order_statistics(conflicts, lambda n: [_rank(n, density)])

        def merge(slab: Slab) -> Tensor:
            (conflict,) = conflicts(slab)
            return _masked(slab, conflict < limit, scale)

        return TensorFuser(merge, elementwise=True)

    return StagedFuser(stages, passes=2, counts=TABLE)


def _rank(count: int, density: float) -> int:
    """The place, from 1, of the smallest conflict that is left out."""
    return min(int(count * density), count - 1) + 1


def _masked(slab: Slab, kept: Tensor, scale: float) -> Tensor:
    total = add_up(slab.deltas())
    return slab.base + total * kept.view(total.shape) * scale


@dataclass(frozen=True)
class _Conflicts:
    """Of every weight, the sum of |tau_i| |tau_j| over pairs: one value for all members."""

    def __call__(self, slab: Slab) -> Iterable[Tensor]:
        total = slab.base.new_zeros(slab.base.shape, dtype=torch.float64)
        pairs = torch.zeros_like(total)
        for delta in slab.deltas():
            size = delta.abs_().double()
            pairs += 2 * total * size
            total += size
        return [pairs.float()]


def _sizes(pool: TaskPool, task: Task, examples: int, seed: int) -> Tensor:
    """The mean over images of the size of each weight's gradient."""
    found = torch.zeros_like(pool.flat)
    count = 0
    for batch in task.sample(examples, _TOGETHER, seed, pool.model.preprocess.fit):
        losses = task.losses(pool.logits(task, batch.images).float(), batch.rows)
        for number, loss in enumerate(losses):
            pool.zero_gradient()
            loss.backward(retain_graph=number < len(losses) - 1)
            found += pool.gradient.abs()
        count += len(losses)
    return found / max(count, 1)
