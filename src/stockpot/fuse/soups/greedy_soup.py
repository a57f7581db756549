"""The greedy soup on held-out images (Wortsman et al., arXiv:2203.05482)."""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import TensorFuser
from stockpot.fuse.learning.coefficients import soup_fuser
from stockpot.fuse.learning.learner import DataFuser, Learned
from stockpot.fuse.learning.pool import TaskPool
from stockpot.fuse.soups.held_out import accuracy


@fusers.register(
    "greedy_soup", paper="arXiv:2203.05482", linear=True, learns=True, needs_data=True, each=False
)
def greedy_soup(*, strict: bool = False, batch_size: int = 256) -> DataFuser:
    """Add members to a mean, best first, as long as held-out accuracy does not fall.

    Needs labelled images that the members were not trained on. By construction the soup is at
    least as good there as the best member.

    Args:
        strict: a member must raise the accuracy to be kept; otherwise it must not lower it.
        batch_size: images per forward pass.
    """

    def learn(pool: TaskPool) -> Learned:
        tasks = pool.need_tasks("greedy_soup", each=False)
        alone = []
        for index in range(len(pool)):
            pool.load_member(index)
            alone.append(accuracy(pool, tasks, batch_size))
        order = sorted(range(len(pool)), key=lambda index: -alone[index])
        kept, best = [order[0]], alone[order[0]]
        for done, index in enumerate(order[1:], start=1):
            pool.progress("adding members", done, len(pool))
            pool.form(_deltas_weights(pool, [*kept, index]))
            found = accuracy(pool, tasks, batch_size)
            if found > best or (found == best and not strict):
                kept.append(index)
                best = found
        weights = torch.zeros(len(pool), dtype=torch.float64)
        weights[kept] = 1 / len(kept)
        facts = {
            "kept": [pool.members[index] for index in kept],
            "accuracy": best,
            "members": dict(zip(pool.members, alone, strict=True)),
            "images": sum(len(task.data) for task in tasks),
            "names": list(pool.names),
        }
        return Learned({"weights": weights}, facts)

    def fuser(learned: Learned) -> TensorFuser:
        names = learned.facts["names"]
        return soup_fuser(names, learned.tensors["weights"][:, None].expand(-1, len(names)))

    return DataFuser(learn, fuser)


def _deltas_weights(pool: TaskPool, kept: list[int]) -> Tensor:
    shares = torch.zeros(len(pool), device=pool.device)
    shares[kept] = 1 / len(kept)
    return shares[:, None].expand(-1, len(pool.names))
