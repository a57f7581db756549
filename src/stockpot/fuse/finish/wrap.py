"""A fusion with the steps that follow it, as one fuser.

The fusers inside see the same slabs as they would alone, so that what they make has the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stockpot.errors import BadParameterError
from stockpot.fuse.finish.finisher import Finish, SurveyFinisher
from stockpot.fuse.finish.then import THEN, Built
from stockpot.fuse.fuser import (
    Fuser,
    Slab,
    StagedFuser,
    Stages,
    SurveyFuser,
    SwitchFuser,
    TensorFuser,
)
from stockpot.fuse.learning.learner import DataFuser, Learner, ModuleFuser

Ready = TensorFuser | SurveyFuser | SwitchFuser


def finished(
    method: str, fusers: Sequence[Fuser | Learner], of: Mapping[str, int], steps: Sequence[Built]
) -> Fuser | Learner:
    """The fusers of one model and the steps that follow, as a fuser of all its tensors.

    Args:
        method: the name of the method, for messages.
        fusers: its fusers.
        of: which of them each tensor has.
        steps: what follows, in order.
    """
    plain: list[Fuser] = []
    for fuser in fusers:
        if isinstance(fuser, ModuleFuser):
            raise BadParameterError(
                f"then: {method} makes a module with parts of its own, not one merged change.",
                parameter=THEN,
            )
        if isinstance(fuser, DataFuser):
            # What learns does so for the whole model: there is one of it.
            return _learning(method, fuser, of, steps)
        plain.append(fuser)
    surveys = sum(isinstance(step.distinct[0], SurveyFinisher) for step in steps)
    looks = sum(_looks(fuser) for fuser in plain)
    switches = any(isinstance(f, SwitchFuser) or getattr(f, "switches", False) for f in plain)

    def room(name: str, shape: tuple[int, ...], count: int) -> float | None:
        fuser = plain[of[name]]
        if isinstance(fuser, TensorFuser | StagedFuser) and fuser.room is not None:
            return fuser.room(name, shape, count)
        return None

    return StagedFuser(
        lambda: _stages(plain, of, steps),
        passes=looks + surveys, switches=switches, whole=True, room=room,
    )  # fmt: skip


def _learning(
    method: str, learner: DataFuser, of: Mapping[str, int], steps: Sequence[Built]
) -> DataFuser:
    def fuser(learned: Any) -> Any:
        return finished(method, [learner.fuser(learned)], of, steps)

    return DataFuser(learner.learn, fuser, learner.held)


def _looks(fuser: Fuser) -> int:
    return fuser.passes if isinstance(fuser, StagedFuser) else 0


Choose = Callable[[str, int], Finish]
"""From a tensor's name and the number of a model to the step that it gets."""


def _stages(fusers: Sequence[Fuser], of: Mapping[str, int], steps: Sequence[Built]) -> Stages:
    ready: list[Ready] = []
    for fuser in fusers:
        ready.append((yield from fuser.stages()) if isinstance(fuser, StagedFuser) else fuser)
    made = _Made(ready, of)
    for step in steps:
        first = step.distinct[0]
        if isinstance(first, SurveyFinisher):
            known = yield _Look(made, first)
            made = _Made(ready, of, (*made.steps, _by_model([first.settle(one) for one in known])))
        else:
            made = _Made(ready, of, (*made.steps, _by_tensor(step)))
    if any(isinstance(fuser, SwitchFuser) for fuser in ready):
        return SwitchFuser(made.models)
    return TensorFuser(lambda slab: made.models(slab)[0])


def _by_model(settled: Sequence[Finish]) -> Choose:
    return lambda name, model: settled[model]


def _by_tensor(step: Built) -> Choose:
    def choose(name: str, model: int) -> Finish:
        found = step.distinct[step.of[name]]
        if isinstance(found, SurveyFinisher):
            raise TypeError(f"{step.name} has not looked at the model")
        return found.finish

    return choose


@dataclass(frozen=True)
class _Made:
    """What the fusers make, with the steps so far."""

    fusers: Sequence[Ready]
    of: Mapping[str, int]
    steps: tuple[Choose, ...] = ()

    def models(self, slab: Slab) -> list[Tensor]:
        """One tensor of the result: of each model that is made."""
        merged = _whole(self.fusers[self.of[slab.name]], slab)
        if not _is_matrix(slab):
            return merged
        return [slab.base + change for change in self._changes(slab, merged)]

    def changes(self, slab: Slab) -> list[Tensor]:
        """The change of one matrix, in each model."""
        return self._changes(slab, _whole(self.fusers[self.of[slab.name]], slab))

    def _changes(self, slab: Slab, merged: Sequence[Tensor]) -> list[Tensor]:
        found = []
        for model, values in enumerate(merged):
            change = values - slab.base
            for choose in self.steps:
                change = choose(slab.name, model)(change, slab)
            found.append(change)
        return found


def _is_matrix(slab: Slab) -> bool:
    return len(slab.info.shape) == 2


def _whole(fuser: Ready, slab: Slab) -> list[Tensor]:
    """A whole tensor of each model, put together from the stretches that the fuser works on."""
    if isinstance(fuser, SwitchFuser):
        parts = list(slab.stretches()) if fuser.elementwise else [slab]
        rows = [fuser.merge(part) for part in parts]
        return [_joined(list(one), slab) for one in zip(*rows, strict=True)]
    if fuser.keeps_equal and _all_equal(slab):
        return [slab.member(0)]
    if isinstance(fuser, SurveyFuser):
        merge = fuser.survey(slab)
        return [_joined([merge(part) for part in slab.stretches(rows=fuser.rows)], slab)]
    parts = list(slab.stretches()) if fuser.elementwise else [slab]
    return [_joined([fuser.merge(part) for part in parts], slab)]


def _joined(parts: Sequence[Tensor], slab: Slab) -> Tensor:
    return torch.cat([part.reshape(-1) for part in parts]).view(slab.info.shape)


def _all_equal(slab: Slab) -> bool:
    members = slab.members()
    first = next(members)
    return all(torch.equal(first, other) for other in members)


@dataclass(frozen=True, eq=False)
class _Look:
    """A pass over the merged changes; by model, what is known of each matrix."""

    made: _Made
    step: SurveyFinisher
    elementwise: bool = False

    def begin(self, count: int) -> dict[str, list[Any]]:
        return {}

    def observe(self, seen: dict[str, list[Any]], slab: Slab) -> None:
        if _is_matrix(slab):
            seen[slab.name] = [self.step.look(one, slab) for one in self.made.changes(slab)]

    def finish(self, parts: Sequence[dict[str, list[Any]]]) -> list[dict[str, Any]]:
        # In one order however many workers there were.
        known = dict(sorted(item for part in parts for item in part.items()))
        models = max(map(len, known.values()), default=1)
        return [{name: row[model] for name, row in known.items()} for model in range(models)]
