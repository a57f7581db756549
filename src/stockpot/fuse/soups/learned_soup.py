"""The learned soup: a softmax over members for every tensor (arXiv:2203.05482, appendix)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F

from stockpot.datasets.dataset import Batch
from stockpot.errors import BadParameterError
from stockpot.fuse import fusers
from stockpot.fuse.fuser import TensorFuser
from stockpot.fuse.learning.bookmark import Losses, Values
from stockpot.fuse.learning.coefficients import soup_fuser
from stockpot.fuse.learning.learner import DataFuser, Learned
from stockpot.fuse.learning.pool import TaskPool
from stockpot.fuse.learning.task import Task


@fusers.register(
    "learned_soup", paper="arXiv:2203.05482", linear=True, learns=True, needs_data=True, each=False
)
def learned_soup(
    *, epochs: int = 5, lr: float = 0.05, batch_size: int = 256, seed: int = 0
) -> DataFuser:
    """Learn convex weights for every tensor, and one temperature, on held-out labelled images.

    theta = sum_t softmax(a)_t theta_t for each tensor, minimising the cross-entropy with AdamW. The
    softmax allows no extrapolation. The temperature only serves the learning.

    Args:
        epochs: passes over the held-out images; none gives the uniform soup.
        lr: step size of AdamW.
        batch_size: images per step.
        seed: of the order of the images.
    """
    if epochs < 0 or lr <= 0 or batch_size < 1:
        raise BadParameterError(
            "learned_soup: expected epochs >= 0, lr > 0 and batch_size >= 1, got "
            f"{epochs}, {lr} and {batch_size}."
        )

    def learn(pool: TaskPool) -> Learned:
        tasks = pool.need_tasks("learned_soup", each=False)
        free = torch.zeros(len(pool), len(pool.names), device=pool.device, requires_grad=True)
        heat = torch.zeros((), device=pool.device, requires_grad=True)
        optimiser = torch.optim.AdamW([free, heat], lr=lr, weight_decay=0.0)
        losses = Losses()
        values = Values(free=free, heat=heat)
        for epoch in pool.walk(
            "learning weights", epochs, values=values, optimiser=optimiser, losses=losses
        ):
            for task, batch in _batches(pool, tasks, batch_size, seed + epoch):
                weights = free.softmax(dim=0)
                pool.form(weights.detach())
                pool.zero_gradient()
                logits = pool.logits(task, batch.images) * heat.exp()
                loss = F.cross_entropy(logits, batch.labels.to(pool.device))
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                weights.backward(pool.pull())  # type: ignore[no-untyped-call]
                optimiser.step()
                losses.append(loss.detach())
        weights = free.detach().double().softmax(dim=0).cpu()
        facts = {
            "mean": dict(zip(pool.members, weights.mean(dim=1).tolist(), strict=True)),
            "loss": [float(losses[0]), float(losses[-1])] if losses else [],
            "names": list(pool.names),
        }
        return Learned({"weights": weights}, facts)

    def fuser(learned: Learned) -> TensorFuser:
        return soup_fuser(learned.facts["names"], learned.tensors["weights"])

    return DataFuser(learn, fuser)


def _batches(
    pool: TaskPool, tasks: tuple[Task, ...], batch_size: int, seed: int
) -> Iterator[tuple[Task, Batch]]:
    """One epoch: the batches of all tasks in turns."""
    fit = pool.model.preprocess.fit
    streams = [(task, task.sample(len(task.data), batch_size, seed, fit)) for task in tasks]
    while streams:
        still = []
        for task, stream in streams:
            if (batch := next(stream, None)) is not None:
                yield task, batch
                still.append((task, stream))
        streams = still
