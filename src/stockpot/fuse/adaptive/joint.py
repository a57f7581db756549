"""Joint multi-task training: what merging is compared with where all data is at hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from stockpot.checkpoints.layouts import plain_name
from stockpot.datasets.dataset import Batch
from stockpot.fuse import fusers
from stockpot.fuse.adaptive.adamerging import first_coefficients
from stockpot.fuse.fuser import Slab, TensorFuser
from stockpot.fuse.learning.bookmark import Losses, Values
from stockpot.fuse.learning.learner import DataFuser, Learned
from stockpot.fuse.learning.memory import Held
from stockpot.fuse.learning.task_pool import Task, TaskPool
from stockpot.types import Count, Natural, Positive, Seed


@fusers.register(
    "joint",
    paper="doi:10.1023/A:1007379606734",
    needs_base=True,
    linear=True,
    learns=True,
    needs_data=True,
)
def joint(
    *,
    steps: Natural = 1000,
    lr: Positive = 1e-5,
    batch_size: Count = 16,
    init: float | str = 0.0,
    seed: Seed = 0,
) -> DataFuser:
    """Train one model on the labelled images of all tasks, each with its own head.

    No fusion, but the baseline beside it: every step takes a batch of each task and follows the
    mean of their losses with Adam. Of the members only the heads are used, and their changes where
    `init` asks for them. BatchNorm statistics do not move.

    Args:
        steps: steps of Adam.
        lr: their size.
        batch_size: images of each task per step.
        init: where training begins: 0 is the base, another number task arithmetic of that scale; or
            a file of merging weights as FusionBench saves them.
        seed: of the order of the images.
    """

    def learn(pool: TaskPool) -> Learned:
        tasks = pool.need_tasks("joint")
        pool.form(first_coefficients(pool, "layer", init))
        weights = nn.Parameter(pool.flat)  # the working model's own memory
        weights.grad = pool.gradient
        optimiser = torch.optim.Adam([weights], lr=lr)
        draws, losses = _Draws(pool, tasks, batch_size, seed), Losses()
        for _ in pool.walk(
            "training", steps, weights=Values(flat=pool.flat), optimiser=optimiser, draws=draws,
            losses=losses,
        ):  # fmt: skip
            pool.zero_gradient()
            losses.append(draws.backward())
            optimiser.step()
        found = {
            f"weights.{plain_name(k)}": v.cpu().clone() for k, v in pool.views(pool.flat).items()
        }
        facts = {"loss_first": float(losses[0]), "loss_last": float(losses[-1])} if losses else {}
        return Learned(found, {"steps": steps, **facts})

    def fuser(learned: Learned) -> TensorFuser:
        def merge(slab: Slab) -> Tensor:
            trained = learned.tensors[f"weights.{plain_name(slab.name)}"].reshape(-1)
            stop = len(trained) if slab.stop is None else slab.stop
            return trained[slab.start : stop].to(slab.base).view(slab.base.shape)

        return TensorFuser(merge, elementwise=True)

    # Two moments of Adam and what a step makes of them, then the weights that are kept.
    return DataFuser(learn, fuser, (Held(images=batch_size, copies=3),))


class _Draws:
    """Labelled batches of every task, and the mean of their losses as a gradient in the pool."""

    def __init__(self, pool: TaskPool, tasks: Sequence[Task], size: int, seed: int) -> None:
        self._pool, self._tasks, self._size, self._seed = pool, tasks, size, seed
        self.load_state_dict({"drawn": 0})

    def backward(self) -> Tensor:
        """One batch of every task forward and backward."""
        self._drawn += 1
        total = torch.zeros((), device=self._pool.device)
        for task, batches in zip(self._tasks, self._batches, strict=True):
            batch = next(batches)
            logits = self._pool.logits(task, batch.images).float()
            loss = task.losses(logits, batch.rows).mean() / len(self._tasks)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        return total

    def state_dict(self) -> dict[str, int]:
        """How many batches of every task were drawn."""
        return {"drawn": self._drawn}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on with the batch after those."""
        self._drawn = state["drawn"]
        fit = self._pool.model.preprocess.fit
        self._batches: list[Iterator[Batch]] = [
            task.labelled(self._size, self._seed * 1000 + index, fit, skip=self._drawn)
            for index, task in enumerate(self._tasks)
        ]
