"""Data-driven fusion's pool: members, and tasks with images and heads of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from stockpot.datasets.dataset import Batch, Dataset
from stockpot.datasets.stream.geometry import Fit
from stockpot.engine.interrupt import held_back, stop_if_asked
from stockpot.errors import BadDataError, BadParameterError
from stockpot.fuse.finite import Inputs
from stockpot.fuse.learning.bookmark import Bookmark, Stateful
from stockpot.fuse.stream import Piece, Stream
from stockpot.models.classifier import Classifier
from stockpot.pool.layout import Layout, put_tensor
from stockpot.pool.pool import Pool
from stockpot.score.scorer import Scorer, scorer_for

AHEAD = 64
"""Batches that are picked out of a dataset at once."""


@dataclass(frozen=True)
class Task:
    """One member's data, and the tensors that are its own: they are not fused."""

    name: str
    data: Dataset
    classes: tuple[str, ...]
    own: Mapping[str, Tensor] = field(default_factory=dict)
    """Name in the working model -> values."""

    @cached_property
    def scorer(self) -> Scorer:
        """What is right for its images."""
        return scorer_for(self.classes, self.data)

    def losses(self, outputs: Tensor, rows: Tensor) -> Tensor:
        """The loss of a model's outputs on each of these rows."""
        return self.scorer.losses(self.scorer.logits(outputs), rows)

    def draws(self, size: int, seed: int, fit: Fit, skip: int = 0) -> Iterator[Tensor]:
        """Batches of unlabelled images without end: every epoch in a new, seeded order."""
        return (batch.images for batch in self.labelled(size, seed, fit, skip))

    def labelled(self, size: int, seed: int, fit: Fit, skip: int = 0) -> Iterator[Batch]:
        """The same batches with rows of `data`, by which their losses are known.

        A dataset smaller than a batch gives the batches that it can. The first `skip` batches are
        left out, and their images not decoded.
        """
        if not len(self.data):
            raise BadDataError(f"{self.data}: expected images to learn from, got none.")
        generator = torch.Generator().manual_seed(seed)
        size = min(size, len(self.data))
        whole = len(self.data) // size * size
        left_out = skip * size
        while True:
            order = torch.randperm(len(self.data), generator=generator)[:whole]
            order, left_out = order[left_out:], max(0, left_out - whole)
            for rows in torch.split(order, size * AHEAD):
                for batch in self.data.take(rows).batches(size, fit):
                    yield batch._replace(rows=rows[batch.rows])

    def sample(self, examples: int, size: int, seed: int, fit: Fit) -> Iterator[Batch]:
        """A seeded sample of the images in random order, once, in batches with rows of `data`."""
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randperm(len(self.data), generator=generator)[:examples]
        for batch in self.data.take(rows).batches(size, fit):
            yield batch._replace(rows=rows[batch.rows])


class TaskPool(Pool):
    """Members in one working model that also takes the head of any task, and learns."""

    def __init__(
        self,
        stream: Stream,
        model: Classifier,
        places: Sequence[str],
        tasks: Sequence[Task],
        members: Sequence[str],
    ) -> None:
        """Lay the aligned checkpoints out and let gradients flow.

        Args:
            stream: the aligned checkpoints.
            model: the architecture; becomes the working model.
            places: for each fused tensor its name in that model.
            tasks: the data, one per member or fewer where the method allows it.
            members: what the members are called.
        """
        rows = stream.alignment.rows
        layout = Layout(
            tuple(row.name for row in rows), tuple(row.info.shape for row in rows), tuple(places)
        )

        def read(index: int) -> Tensor:
            inputs = Inputs()
            slabs = (stream.slab(Piece(row, 0, None), inputs) for row in rows)
            flat = layout.flatten((slab.member(index) for slab in slabs), stream.device)
            inputs.settle()
            return flat

        base = stream.alignment.base is not None
        super().__init__(model, layout, read, members, device=stream.device, base=base)
        self.tasks = tuple(tasks)
        self._adopted: tuple[Task, ...] = ()
        self.progress: Callable[[str, int, int], None] = lambda what, done, total: None
        self.bookmark = Bookmark()
        self.watch()

    def adopt(self, *tasks: Task) -> None:
        """Give the working model the tensors of a task, or the heads of several side by side."""
        if tasks == self._adopted:
            return
        for place, value in tasks[0].own.items():
            several = len(tasks) > 1
            put_tensor(
                self.model,
                place,
                torch.cat([task.own[place] for task in tasks]) if several else value,
            )
        self._adopted = tasks

    def can_join(self, tasks: Sequence[Task]) -> bool:
        """Whether the tasks differ in nothing but heads with one row per class."""
        return all(
            value.ndim > 0 and len(value) == len(task.classes)
            for task in tasks
            for value in task.own.values()
        )

    def logits(self, task: Task, pixels: Tensor) -> Tensor:
        """The working model's logits with the head of a task."""
        self.adopt(task)
        logits: Tensor = self.model(pixels.to(self.device))
        return logits

    def logits_of_several(self, tasks: Sequence[Task], pixels: Sequence[Tensor]) -> list[Tensor]:
        """Logits of several tasks, each on its own images, from one pass over all of them."""
        if len(tasks) == 1:
            return [self.logits(tasks[0], pixels[0])]
        self.adopt(*tasks)
        seen = [self.seen(batch) for batch in pixels]
        joint: Tensor = self.model.network(torch.cat(seen))
        parts, row, column = [], 0, 0
        for task, batch in zip(tasks, seen, strict=True):
            width = len(task.classes)
            if joint.shape[1] == width:  # one head for all
                column = 0
            parts.append(joint[row : row + len(batch), column : column + width])
            row, column = row + len(batch), column + width
        return parts

    def seen(self, pixels: Tensor) -> Tensor:
        """Pixels as the network sees them."""
        if self.device.type == "cuda" and not pixels.is_cuda:
            # Copied while the GPU works; from ordinary memory the copy would wait for it.
            pixels = pixels.contiguous().pin_memory()
        return self.model.seen(pixels.to(self.device, non_blocking=True))

    def need_tasks(self, method: str, *, each: bool = True) -> tuple[Task, ...]:
        """The tasks, if there are as many as the method needs."""
        if each and len(self.tasks) == 1 < len(self):
            return self.tasks * len(self)  # one dataset for all
        if not self.tasks or (each and len(self.tasks) != len(self)):
            wanted = f"one dataset per member ({len(self)})" if each else "a dataset"
            raise BadParameterError(
                f"{method}: expected {wanted}, got {len(self.tasks) or 'none'}.",
                hint="Give tasks=[...] (--task, or `data:` in a recipe).",
            )
        return self.tasks

    def walk(self, stage: str, steps: int, **parts: Stateful) -> Iterator[int]:
        """The numbers of the steps still to do, with progress and bookmarks between them.

        Args:
            stage: what is being learned.
            steps: of this stage in all.
            parts: everything that a step changes and a later one reads, and what a later stage
                will not make again.
        """
        for step in range(self.bookmark.restore(stage, steps, parts), steps):
            with held_back() if self.bookmark.is_kept else nullcontext():
                yield step
                self.progress(stage, step + 1, steps)
                self.bookmark.keep(stage, step + 1, parts)
                stop_if_asked(f"Step {step + 1:,} of {steps:,} ({stage}) is saved.")
        self.bookmark.finish(stage)
