"""Accuracy of the working model on held-out, labelled images."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from stockpot.fuse.learning.pool import TaskPool
from stockpot.fuse.learning.task import Task


@torch.no_grad()
def accuracy(pool: TaskPool, tasks: Sequence[Task], batch_size: int) -> float:
    """The share of images that the working model gets right, a mean over tasks."""
    shares = []
    fit = pool.model.preprocess.fit
    for task in tasks:
        right = torch.zeros((), device=pool.device, dtype=torch.long)
        for batch in task.data.batches(batch_size, fit):
            found = pool.logits(task, batch.images).argmax(dim=1)
            right += (found == batch.labels.to(pool.device)).sum()
        shares.append(int(right) / max(len(task.data), 1))
    return sum(shares) / len(shares)
