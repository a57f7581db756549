"""Soups chosen or learned on held-out, labelled images (Wortsman et al., arXiv:2203.05482)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from stockpot.datasets.dataset import Batch
from stockpot.fuse import fusers
from stockpot.fuse.fuser import TensorFuser
from stockpot.fuse.learning.bookmark import Losses, Values
from stockpot.fuse.learning.coefficients import soup_fuser
from stockpot.fuse.learning.learner import DataFuser, Learned
from stockpot.fuse.learning.memory import Held
from stockpot.fuse.learning.task_pool import Task, TaskPool
from stockpot.pool.soups import Judged, LearnedSoup, greedy
from stockpot.types import Count, Epochs, Positive


@fusers.register(
    "greedy_soup", paper="arXiv:2203.05482", linear=True, learns=True, needs_data=True, each=False
)
def greedy_soup(*, strict: bool = False, batch_size: Count = 256) -> DataFuser:
    """Add members to a mean, best first, as long as held-out accuracy does not fall.

    Needs labelled images that the members were not trained on. By construction the soup is at
    least as good there as the best member.

    Args:
        strict: a member must raise the accuracy to be kept; otherwise it must not lower it.
        batch_size: images per forward pass.
    """

    def learn(pool: TaskPool) -> Learned:
        tasks = pool.need_tasks("greedy_soup", each=False)
        found = greedy(
            len(pool),
            lambda weights: _judged(pool, weights, tasks, batch_size),
            strict=strict,
            tried=lambda done: pool.progress("adding members", done, len(pool)),
        )
        facts = {
            "kept": [pool.members[index] for index in found.kept],
            "accuracy": found.trace[-1],
            "members": dict(zip(pool.members, found.alone, strict=True)),
            "images": sum(len(task.data) for task in tasks),
            "names": list(pool.names),
        }
        return Learned({"weights": found.weights}, facts)

    def fuser(learned: Learned) -> TensorFuser:
        names = learned.facts["names"]
        return soup_fuser(names, learned.tensors["weights"][:, None].expand(-1, len(names)))

    return DataFuser(learn, fuser, (Held(batch_size, backward=False),))


@fusers.register(
    "learned_soup", paper="arXiv:2203.05482", linear=True, learns=True, needs_data=True, each=False
)
def learned_soup(
    *, epochs: Epochs = 5, lr: Positive = 0.05, batch_size: Count = 256, seed: int = 0
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

    def learn(pool: TaskPool) -> Learned:
        tasks = pool.need_tasks("learned_soup", each=False)
        soup = LearnedSoup(pool, lr)
        losses = Losses()
        values = Values(free=soup.free, heat=soup.heat)
        for epoch in pool.walk(
            "learning weights", epochs, values=values, optimiser=soup.optimiser, losses=losses
        ):
            for task, batch in _batches(pool, tasks, batch_size, seed + epoch):
                outputs = partial(pool.logits, task, batch.images)
                losses.append(soup.step(outputs, partial(task.losses, rows=batch.rows)))
        weights = soup.weights
        facts = {
            "mean": dict(zip(pool.members, weights.mean(dim=1).tolist(), strict=True)),
            "loss": [float(losses[0]), float(losses[-1])] if losses else [],
            "names": list(pool.names),
        }
        return Learned({"weights": weights}, facts)

    def fuser(learned: Learned) -> TensorFuser:
        return soup_fuser(learned.facts["names"], learned.tensors["weights"])

    return DataFuser(learn, fuser, (Held(batch_size),))


@torch.no_grad()
def _judged(pool: TaskPool, weights: Tensor, tasks: Sequence[Task], batch_size: int) -> Judged:
    """The share of images that a soup gets right and its loss, means over tasks."""
    pool.load(weights)
    shares, losses = [], []
    fit = pool.model.preprocess.fit
    for task in tasks:
        right = torch.zeros((), device=pool.device, dtype=torch.long)
        loss = torch.zeros((), device=pool.device, dtype=torch.float64)
        for batch in task.data.batches(batch_size, fit):
            outputs = pool.logits(task, batch.images)
            right += task.scorer.correct(outputs, batch.rows).sum()
            loss += task.losses(outputs.float(), batch.rows).double().sum()
        count = max(len(task.data), 1)
        shares.append(int(right) / count)
        losses.append(float(loss) / count)
    return Judged(sum(shares) / len(shares), sum(losses) / len(losses))


def _batches(
    pool: TaskPool, tasks: Sequence[Task], batch_size: int, seed: int
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
