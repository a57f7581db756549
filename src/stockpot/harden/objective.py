"""What a hardening method supplies: a function from a batch to a loss, and what else it may do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from torch import Generator, Tensor, nn

from stockpot.datasets.dataset import Dataset
from stockpot.models.classifier import Classifier


@dataclass(frozen=True)
class Step:
    """What an objective gets for one batch."""

    model: Classifier
    pixels: Tensor
    labels: Tensor
    generator: Generator
    number: int


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
