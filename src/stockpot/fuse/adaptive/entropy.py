"""The entropy of predictions on unlabelled images, added up over tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from stockpot.fuse.learning.task_pool import Task, TaskPool

Answers = Callable[[Sequence[Task], Sequence[Tensor]], list[Tensor]]


def entropy(logits: Tensor) -> Tensor:
    """The mean entropy of the rows, in nats; a probability of zero counts nothing."""
    probabilities = logits.softmax(dim=-1)
    return -(probabilities * torch.log(probabilities + 1e-8)).sum(dim=-1).mean()


class Adaptation:
    """Batches of every task, and the sum of their entropies as a gradient in the pool.

    One backward pass per group of tasks: gradients add up, activations of one group are alive.
    """

    def __init__(
        self,
        pool: TaskPool,
        tasks: Sequence[Task],
        batch_size: int,
        seed: int,
        together: int = 1,
        answers: Answers | None = None,
    ) -> None:
        """Start the draws of all tasks.

        Args:
            pool: the members.
            tasks: where the images come from; their labels are never read.
            batch_size: images of each task per step.
            seed: of the draws.
            together: how many tasks share one forward and backward pass.
            answers: gives the logits of several tasks, where not the working model does.
        """
        self._answers = answers or pool.logits_of_several
        self._pool = pool
        self._batch_size = batch_size
        self._seed = seed
        size = together if pool.can_join(tasks) else 1
        self._groups = [
            list(range(start, min(start + size, len(tasks))))
            for start in range(0, len(tasks), size)
        ]
        self._tasks = tasks
        self.load_state_dict({"drawn": 0})

    def backward(self) -> Tensor:
        """Run one batch of every task forward and backward; returns the summed entropy.

        A tensor: reading its value in every step would make a GPU wait for the program.
        """
        self._drawn += 1
        total = torch.zeros((), device=self._pool.device)
        for group in self._groups:
            tasks = [self._tasks[index] for index in group]
            pixels = [next(self._draws[index]) for index in group]
            logits = self._answers(tasks, pixels)
            loss = torch.stack([entropy(part.float()) for part in logits]).sum()
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
        self._draws: list[Iterator[Tensor]] = [
            task.draws(self._batch_size, self._seed * 1000 + index, fit, skip=self._drawn)
            for index, task in enumerate(self._tasks)
        ]
