"""The kinds of fusion method, told apart by type.

- `TensorFuser`: a pure function of the aligned tensors of one name.
- `StagedFuser`: the same, after one or more streamed passes have gathered facts about the whole
  model (a global threshold, say). It is a generator: it yields passes, is sent their results, and
  returns the fuser that does the work.
- `SurveyFuser`: a function of stretches of a tensor, made after a look at the whole of it (a norm,
  a rank), so that no tensor has to be in memory whole.
- `SwitchFuser`: one output per member, for methods that keep a model per task.

None of them knows about files, threads or devices: they see slabs. Methods that learn from models
and data before they merge are in `fuse/learning/learner.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from stockpot.checkpoints.source import TensorInfo
from stockpot.fuse.room import Room

Read = Callable[[int, int, int | None], Tensor]
Factors = tuple[Tensor, Tensor]
"""A change as a product: columns, and rows that multiply them."""
TOGETHER = 1 << 21
"""Elements of all members that are held at once where a method compares them."""
_SHORTEST = 1 << 12


class Peers(NamedTuple):
    """The other tensors of the model that a slab is part of."""

    infos: Mapping[str, TensorInfo]
    slab: Callable[[str], Slab]
    """The same stretch of another tensor."""


class Slab:
    """The values of one tensor name in the base and in every member, or of one stretch of it.

    Elementwise methods get a tensor in flat stretches, so that memory does not grow with the
    tensor; others get it whole, in its shape. Values are in the accumulation dtype and must not
    be changed in place.

    Args:
        name: the tensor's.
        info: the whole tensor's.
        read: gives the values of a member, or of the base (-1), between two elements, flat; or
            all of them in their shape, where the second is None.
        count: how many members there are.
        step: the elements of a stretch.
        start: where this slab begins.
        stop: where it ends; None for a whole tensor.
        based: whether there is a base to read.
        peers: gives the other tensors of the model.
        factors: gives a member's change as a product, where it is kept as one.
    """

    def __init__(
        self,
        name: str,
        info: TensorInfo,
        read: Read,
        count: int,
        step: int,
        start: int = 0,
        stop: int | None = None,
        *,
        based: bool = False,
        peers: Callable[[], Peers] | None = None,
        factors: Callable[[int], Factors | None] | None = None,
    ) -> None:
        self.based = based
        self._peers = peers
        self.name = name
        self.info = info
        self.start = start
        self.stop = stop
        self.count = count
        self._step = step
        self._read = read
        self._factors = factors

    @property
    def peers(self) -> Peers:
        """The other tensors, for methods that exchange them; of a whole tensor only."""
        if self._peers is None:
            raise LookupError(f"{self.name} stands alone")
        return self._peers()

    @cached_property
    def base(self) -> Tensor:
        """The base's values; only for methods that need a base."""
        return self.member(-1)

    def member(self, index: int) -> Tensor:
        """The values of one member, read anew at each call."""
        return self._read(index, self.start, self.stop)

    def members(self) -> Iterator[Tensor]:
        """The members' values, one after the other."""
        return (self.member(index) for index in range(self.count))

    def stretches(self, *, rows: bool = False, together: bool = False) -> Iterator[Slab]:
        """The same values in shorter parts, one after the other.

        Args:
            rows: cut between rows only; a row is what one number of the first side stands for.
            together: shorter ones for more members, to hold those of all at once.
        """
        total = self.info.numel
        end = total if self.stop is None else self.stop
        step = min(self._step, max(_SHORTEST, TOGETHER // self.count)) if together else self._step
        if rows:
            shape = self.info.shape
            row = max(total // shape[0] if len(shape) > 1 and shape[0] else total, 1)
            step = max(1, step // row) * row
        for start in range(self.start, max(end, self.start + 1), step):
            stop = min(start + step, end)
            yield Slab(
                self.name, self.info, self._read, self.count, self._step, start, stop,
                based=self.based, peers=self._peers,
            )  # fmt: skip

    def smallest(self) -> Tensor:
        """The members' smallest values, element by element."""
        members = self.members()
        smallest = next(members).clone()
        for values in members:
            torch.minimum(smallest, values, out=smallest)
        return smallest

    def delta(self, index: int) -> Tensor:
        """What one member changed: its values less the base's."""
        return self.member(index) - self.base

    def deltas(self) -> Iterator[Tensor]:
        """All changes, one after the other, each a fresh tensor."""
        return (self.delta(index) for index in range(self.count))

    def all_factors(self) -> tuple[Factors, ...] | None:
        """All changes of a whole matrix as products, in fp64; none where one is not kept so."""
        found: list[Factors] = []
        for index in range(self.count if self._factors and self.stop is None else 0):
            pair = self._factors(index) if self._factors else None
            if pair is None:
                return None
            found.append(pair)
        return tuple(found) or None

    def stacked_deltas(self) -> Tensor:
        """All changes at once, members first."""
        base = self.base
        stack = base.new_empty((self.count, *base.shape))
        for index in range(self.count):
            torch.sub(self.member(index), base, out=stack[index])
        return stack


class Pass(Protocol):
    """One streamed look at all tensors.

    Every worker has its own accumulator. The result must not depend on which worker saw which
    slab. Passes are values: two that are equal are run once, which is how the points of a sweep
    share them.
    """

    @property
    def elementwise(self) -> bool:
        """Whether a stretch of a tensor is enough to look at."""
        ...

    def begin(self, count: int) -> Any:
        """An empty accumulator, for `count` members."""
        ...

    def observe(self, seen: Any, slab: Slab) -> None:
        """Add a slab to an accumulator."""
        ...

    def finish(self, parts: Sequence[Any]) -> Any:
        """The result, from the accumulators of all workers."""
        ...


@dataclass(frozen=True)
class TensorFuser:
    """A method that needs nothing but the tensors of one name."""

    merge: Callable[[Slab], Tensor]
    elementwise: bool = False
    """Whether it may see a tensor in stretches."""
    keeps_equal: bool = False
    """Whether members that are all the same must come back bit for bit although the arithmetic
    rounds: three times x, divided by three, need not be x."""
    one_by_one: bool = False
    """Whether of a tensor that it sees whole it holds one member at a time, for the plan."""
    room: Room | None = None
    """What it holds of a tensor that it sees whole, where members are not all of it."""


@dataclass(frozen=True)
class SurveyFuser:
    """A method that looks at a whole tensor before it makes it, stretch by stretch."""

    survey: Callable[[Slab], Callable[[Slab], Tensor]]
    """From the whole tensor to the function that makes a stretch of it."""
    looks: int = 1
    """How often the survey reads the tensor, for the plan."""
    rows: bool = False
    """Whether a stretch has to be of whole rows."""
    keeps_equal: bool = False
    """As for `TensorFuser`."""
    elementwise: ClassVar[bool] = False


@dataclass(frozen=True)
class Small:
    """How models per member are kept small, as `stockpot.checkpoints.small` reads them."""

    kind: str
    packed: Callable[[str, tuple[int, ...]], bool]
    """Whether a tensor of this name and shape is packed; the others are kept whole."""
    pack: Callable[[Slab], Sequence[Mapping[str, Tensor]]] | None = None
    """Of each member, what is kept of a packed tensor, by the end of its name."""
    share: Callable[[Slab], Tensor] | None = None
    """What all members share of a tensor, where they share all they have."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    """The first member's; each of the next has the next."""


@dataclass(frozen=True)
class SwitchFuser:
    """A method that makes one model per member."""

    merge: Callable[[Slab], Sequence[Tensor]]
    elementwise: bool = False
    together: Mapping[str, Any] | None = None
    """How the models answer together, where they are an ensemble."""
    small: Small | None = None
    """How their folders are kept small."""


Stages = Generator[Pass, Any, TensorFuser | SurveyFuser | SwitchFuser]


@dataclass(frozen=True)
class StagedFuser:
    """A method that looks at the whole model before it merges."""

    stages: Callable[[], Stages]
    passes: int
    """How many looks it takes, for the plan."""
    switches: bool = False
    """Whether it makes one model per member."""
    holds: int = 0
    """How many models' weights it keeps from its looks until it has merged, for the plan."""
    counts: int = 0
    """Bytes for each member in which a thread counts what it sees, for the plan."""
    whole: bool = False
    """Whether it sees tensors whole, for the plan."""
    one_by_one: bool = False
    """As for `TensorFuser`."""
    room: Room | None = None
    """As for `TensorFuser`."""


Fuser = TensorFuser | SurveyFuser | SwitchFuser | StagedFuser
