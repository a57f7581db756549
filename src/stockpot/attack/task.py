"""What an attack is asked, and what it answers, image by image."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from stockpot.attack.projection import per_image
from stockpot.attack.threat import Threat

Goal = Literal["accuracy", "loss"]
"""`accuracy`: an image leaves as soon as it is misclassified. `loss`: all stay to the end."""


@dataclass(frozen=True)
class Task:
    """Images to attack. `soft` holds label distributions where the loss asks for them."""

    images: Tensor
    labels: Tensor
    seeds: Tensor
    threat: Threat
    goal: Goal = "accuracy"
    soft: Tensor | None = None

    def __len__(self) -> int:
        return len(self.images)

    @property
    def leave(self) -> bool:
        """Whether fallen images leave the batch."""
        return self.goal == "accuracy"

    def waiting(self, outcome: Outcome) -> Tensor:
        """The rows that a further attempt should try."""
        if not self.leave:
            return torch.arange(len(self), device=self.images.device)
        return (~outcome.fallen).nonzero()[:, 0]

    def take(self, rows: Tensor) -> Task:
        """The task of some of the images."""
        return take(self, rows)


@dataclass(frozen=True)
class Outcome:
    """Per image: the worst image found, whether it is misclassified, its loss, and the cost.

    `queries` counts forward passes; `planned` is what they would be if no image ever left.
    """

    images: Tensor
    fallen: Tensor
    loss: Tensor
    queries: Tensor
    planned: Tensor
    flat: Tensor
    """Whether the gradient was zero everywhere at the start."""
    needs: int = 0
    """How many classes its losses need; with fewer they fell back to the margin."""
    stages: Mapping[str, Tensor] = field(default_factory=dict)
    """For attacks made of several: who was still standing after each."""


def untouched(task: Task) -> Outcome:
    """Nothing tried yet."""
    n, device = len(task), task.images.device
    none = torch.zeros(n, dtype=torch.bool, device=device)
    zero = torch.zeros(n, dtype=torch.long, device=device)
    low = task.images.new_full((n,), -torch.inf)
    return Outcome(task.images.clone(), none, low, zero, zero.clone(), none.clone())


def absorb(known: Outcome, rows: Tensor, new: Outcome) -> Outcome:
    """Add what a further attempt on some rows has found; a worse image never replaces a better.

    A fallen image stays fallen. Among standing ones the higher loss wins. The plan is the
    caller's to state: an attempt on some rows says nothing about those that had left before.
    """
    better = new.fallen | (new.loss > known.loss[rows])
    images, loss, fallen = known.images.clone(), known.loss.clone(), known.fallen.clone()
    # Chosen by `where`, not by a mask as index, which would make the host wait for the device.
    images[rows] = torch.where(per_image(better, images), new.images, images[rows])
    loss[rows] = torch.where(better, new.loss.to(loss), loss[rows])
    fallen[rows] |= new.fallen
    queries = known.queries.index_add(0, rows, new.queries)
    flat = known.flat.clone()
    flat[rows] |= new.flat
    needs = max(known.needs, new.needs)
    return replace(
        known, images=images, fallen=fallen, loss=loss, queries=queries, flat=flat, needs=needs
    )


Attempt = Callable[[Task, Tensor, int, int], Outcome]
"""One run of an attack: on a part of the task, its rows, for an aim, as a restart."""


def attempts(task: Task, attempt: Attempt, *, restarts: int, aims: int = 1) -> Outcome:
    """Try every aim as often as asked, each time on the images that still stand."""
    outcome = untouched(task)
    for aim in range(aims):
        for restart in range(restarts):
            rows = task.waiting(outcome)
            if not len(rows):
                return outcome
            outcome = absorb(outcome, rows, attempt(task.take(rows), rows, aim, restart))
    return outcome


def planned(outcome: Outcome, queries: int) -> Outcome:
    """State what every image would have cost if none had left."""
    return replace(outcome, planned=torch.full_like(outcome.planned, queries))


T = TypeVar("T")


def take(value: T, rows: Tensor) -> T:
    """The same dataclass with every tensor reduced to some of its rows."""
    chosen: dict[str, Any] = {}
    for item in fields(value):  # type: ignore[arg-type]
        content = getattr(value, item.name)
        if isinstance(content, Tensor):
            chosen[item.name] = content[rows]
        elif isinstance(content, tuple) and content and isinstance(content[0], Tensor):
            chosen[item.name] = tuple(each[rows] for each in content)
    return replace(value, **chosen)  # type: ignore[type-var]
