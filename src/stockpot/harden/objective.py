"""What a hardening method supplies: a function from a batch to a loss, and what else it may do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from torch import Generator, Tensor, nn

from stockpot.datasets.dataset import Dataset
from stockpot.harden.many.shares import gathered, own_rows
from stockpot.models.classifier import Classifier


@dataclass(frozen=True)
class Batch:
    """Pictures and what they show."""

    pixels: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Step:
    """What an objective gets for one batch.

    Of many processes each gets its own rows. What is drawn for pictures is drawn for the whole
    batch, in every process alike, and each keeps its rows: `own(draw(len(whole)))`.
    """

    model: Classifier
    pixels: Tensor
    labels: Tensor
    generator: Generator
    number: int
    of_all: Batch | None = None
    """The batch of all processes, where there are several."""
    masks: Tensor | None = None
    """Where the objects of this process's pictures are, for data that knows, unless pictures were
    moved by augmentations."""

    @property
    def whole(self) -> Batch:
        """The batch of all processes."""
        return Batch(self.pixels, self.labels) if self.of_all is None else self.of_all

    def own(self, values: Tensor) -> Tensor:
        """This process's rows of values for the whole batch."""
        return values if self.of_all is None else values[own_rows(len(values))]

    def gathered(self, values: Tensor) -> Tensor:
        """Values for the whole batch, of each process's own; gradients find their way back."""
        return values if self.of_all is None else gathered(values, len(self.of_all.labels))


Objective = Callable[[Step], Tensor]
"""From one batch to the loss that is minimised."""


@runtime_checkable
class Remembers(Protocol):
    """An objective that learns as it goes; what it knows is saved and resumed with the weights."""

    def state_dict(self) -> dict[str, Any]:
        """Plain values."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of `state_dict`."""
        ...


@runtime_checkable
class Begins(Protocol):
    """An objective that looks at the model and the data once, before the first step."""

    def begin(self, model: Classifier, data: Dataset, validation: Dataset | None) -> None:
        """Called with the model as it starts, in a resumed run too; may set its weights."""
        ...


@runtime_checkable
class Learns(Protocol):
    """An objective with weights of its own, trained as the model's are."""

    def parameters(self) -> list[nn.Parameter]:
        """Known once it has begun."""
        ...


@runtime_checkable
class Same(Protocol):
    """An objective that looks at nothing but the model, the pixels and the labels of a step.

    On a GPU its passes are recorded once (`harden/slopes.py`).
    """

    same_every_step: bool


def begin(objective: object, model: Classifier, data: Dataset, validation: Dataset | None) -> None:
    """Let an objective look at what it will train, where it wants to."""
    if isinstance(objective, Begins):
        objective.begin(model, data, validation)


def parameters_of(objective: object) -> list[nn.Parameter]:
    """The weights of an objective's own."""
    return objective.parameters() if isinstance(objective, Learns) else []


def memory_of(objective: object) -> Remembers | None:
    """The objective where it learns as it goes."""
    return objective if isinstance(objective, Remembers) else None


def is_same(objective: object) -> bool:
    """Whether it does the same with every batch."""
    return isinstance(objective, Same) and objective.same_every_step
