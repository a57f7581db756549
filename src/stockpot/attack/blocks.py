"""Which images are still in work: fallen ones leave, one by one or in blocks of few sizes.

On a CPU a pass costs what its images cost, so an image leaves at once. A GPU runs captured steps of
fixed size and should not be waited for: images leave every few steps, and a batch shrinks only when
that pays. The empty places are filled with copies of an image, whose answers go nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from stockpot.attack.captured import Graphs, Tensors
from stockpot.attack.task import Outcome, take

_SMALLEST = 16
_SLACK = 1.2  # how much larger a block may be than what is in it before it is worth a new one


class Crowd(Protocol):
    """What a run knows of each of its images: a dataclass of tensors, one row for each."""

    rows: Tensor
    """Where the answer goes; one past the last for those whose answer was taken or is not asked."""
    done: Tensor
    """Whether nothing more is tried."""
    fallen: Tensor
    found: Tensor
    """The answer for those who are done, and its loss."""
    found_loss: Tensor
    queries: Tensor

    @property
    def labels(self) -> Tensor:
        """The right classes."""
        ...


C = TypeVar("C", bound=Crowd)


@dataclass
class Answers:
    """What is known of all images of a run, with one row more for what nobody asked."""

    images: Tensor
    fallen: Tensor
    loss: Tensor
    queries: Tensor

    @classmethod
    def of(cls, images: Tensor, loss: Tensor) -> Answers:
        """Room for the answers about these images; losses are of this kind."""
        n = len(images) + 1
        return cls(
            images.new_zeros(n, *images.shape[1:]),
            torch.zeros(n, dtype=torch.bool, device=images.device),
            loss.new_full((n,), -torch.inf),
            torch.zeros(n, dtype=torch.long, device=images.device),
        )

    @property
    def nowhere(self) -> int:
        """The row of what nobody asked."""
        return len(self.images) - 1

    def put(
        self, rows: Tensor, images: Tensor, fallen: Tensor, loss: Tensor, queries: Tensor
    ) -> None:
        """Write down the answers of some rows."""
        self.images[rows], self.fallen[rows] = images, fallen
        self.loss[rows], self.queries[rows] = loss, queries

    def outcome(self, flat: Tensor) -> Outcome:
        """All answers; the plan is the caller's to state."""
        images, fallen, loss, queries = (
            each[:-1] for each in (self.images, self.fallen, self.loss, self.queries)
        )
        return Outcome(images, fallen, loss, queries, torch.zeros_like(queries), flat)


@dataclass
class Blocks:
    """How many images a run holds at a time, and when it looks who may leave."""

    graphs: Graphs | None
    every: int
    """Steps between two looks, where steps are captured."""
    judge: Callable[[Tensor, Tensor], Tensor] | None
    """Whether images are misclassified, exactly; nothing where the search itself is exact."""
    looks: int = 1
    """Forward passes of one judgement."""

    def due(self, number: int) -> bool:
        """Whether to look after this step."""
        return self.graphs is None or number % self.every == 0

    def settled(self, state: C, answers: Answers) -> C:
        """The state without those who are done, whose answers are written down.

        Where the search is not exact, a fall is confirmed first; an image that did not really fall
        is tried further.
        """
        if self.judge is not None:
            self._confirm(state, answers.nowhere)
        gone = state.done.nonzero()[:, 0]
        if len(gone):
            answers.put(
                state.rows[gone], state.found[gone], state.fallen[gone], state.found_loss[gone],
                state.queries[gone],
            )  # fmt: skip
        elif self.graphs is None:
            return state
        staying = (~state.done).nonzero()[:, 0]
        count, now = len(staying), len(state.rows)
        size = self._size(count, now)
        if size == now:
            state.rows = torch.where(state.done, answers.nowhere, state.rows)
            return state
        state = take(state, torch.cat([staying, staying[:1].expand(size - count)]))
        state.rows[count:], state.done[count:] = answers.nowhere, True
        return state

    def _confirm(self, state: C, nowhere: int) -> None:
        fresh = (state.done & state.fallen & (state.rows < nowhere)).nonzero()[:, 0]
        if self.judge is None or not len(fresh):
            return
        wrong = self.judge(state.found[fresh], state.labels[fresh])
        # What did not fall need not be surpassed by what does.
        loss = torch.where(wrong, state.found_loss[fresh], -torch.inf)
        state.found_loss = state.found_loss.index_put((fresh,), loss)
        state.fallen = state.fallen.index_put((fresh,), wrong)
        state.done = state.done.index_put((fresh,), wrong)
        state.queries = state.queries.index_add(0, fresh, torch.full_like(fresh, self.looks))

    def _size(self, count: int, now: int) -> int:
        """The batch size for so many images, when the batch has `now` places."""
        if self.graphs is None or not count:
            return count
        near = {size for size in self.graphs.sizes if count <= size <= count * _SLACK}
        return now if now in near else min(near, default=_rounded(count))

    def run(self, key: Hashable, ahead: int, step: Callable[[C], C], state: C) -> C:
        """One step of the whole batch, captured where that is possible."""
        if self.graphs is None:
            return step(state)

        def flat(*tensors: Tensor) -> Tensors:
            return _tensors(step(_rebuilt(state, tensors)))

        return _rebuilt(state, self.graphs.run(key, ahead, flat, *_tensors(state)))


def _tensors(state: Any) -> Tensors:
    """The tensors of a state in the order of its fields."""
    found: list[Tensor] = []
    for item in fields(state):
        value = getattr(state, item.name)
        found += value if isinstance(value, tuple) else [value]
    return tuple(found)


def _rebuilt(state: C, tensors: Tensors) -> C:
    """A state like this one of other tensors."""
    left = iter(tensors)
    values: dict[str, Any] = {}
    for item in fields(state):  # type: ignore[arg-type]
        old = getattr(state, item.name)
        new = tuple(next(left) for _ in old) if isinstance(old, tuple) else next(left)
        values[item.name] = new
    return replace(state, **values)  # type: ignore[type-var]


def _rounded(count: int) -> int:
    """The next of eight sizes between two powers of two."""
    unit = max(_SMALLEST, 1 << max(0, (count - 1).bit_length() - 4))
    return -(-count // unit) * unit
