"""Work that builds on other work: in order, beside each other, until a deadline, and resumed.

    for end in schedule(make, steps, engine=Processes(2), deadline=time.monotonic() + 600): ...

A step starts as soon as its parents are done and a worker is free. One that fails costs those that
build on it and no other. After the deadline nothing new starts; what runs may end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from stockpot.engine import Engine
from stockpot.errors import BadParameterError, UserError

State = Literal["done", "there", "failed", "blocked", "late"]


class Step(NamedTuple):
    """A piece of work: its name, the names of what it builds on, and what the function is given.

    Parents that are no steps themselves are taken to be there.
    """

    name: str
    parents: Sequence[str]
    job: Any


class End(NamedTuple):
    """What became of a step.

    `there`: it was before; `blocked`: something that it builds on is missing; `late`: the deadline
    came first.
    """

    name: str
    state: State
    value: Any = None
    error: Exception | None = None


def schedule(
    function: Callable[[Any], Any],
    steps: Sequence[Step],
    *,
    engine: Engine,
    deadline: float = math.inf,
    there: Callable[[str], bool] = lambda name: False,
) -> Iterator[End]:
    """Run the steps' jobs on an engine and yield what becomes of each, as it does.

    Args:
        function: called with each job; it saves what it makes.
        steps: in order of preference; of those that could start, the first does.
        engine: where they run.
        deadline: by `time.monotonic()`; no step starts after it.
        there: whether what a step makes is there already; asked once, before anything starts.
    """
    checked(steps)
    ended: dict[str, State] = {}
    waiting: list[int] = []
    for index, step in enumerate(steps):
        if there(step.name):
            ended[step.name] = "there"
            yield End(step.name, "there")
        else:
            waiting.append(index)
    names = {step.name for step in steps}
    workers = engine.open(function, len(waiting))
    running: set[int] = set()
    try:
        while waiting or running:
            for index in list(waiting):
                step = steps[index]
                states = {parent: ended.get(parent) for parent in step.parents if parent in names}
                lost = [name for name, state in states.items() if state in _WITHOUT]
                if lost:
                    waiting.remove(index)
                    ended[step.name] = "blocked"
                    problem = UserError(f"{step.name}: not made, for lack of {', '.join(lost)}.")
                    yield End(step.name, "blocked", error=problem)
                elif time.monotonic() >= deadline:
                    waiting.remove(index)
                    ended[step.name] = "late"
                    yield End(step.name, "late")
                elif len(running) < workers.size and None not in states.values():
                    waiting.remove(index)
                    running.add(index)
                    workers.submit(index, step.job)
            if running:
                index, value, error = workers.next()
                running.remove(index)
                state: State = "done" if error is None else "failed"
                ended[steps[index].name] = state
                yield End(steps[index].name, state, value, error)
    finally:
        workers.close()


_WITHOUT = ("failed", "blocked", "late")


def checked(steps: Sequence[Step]) -> list[Step]:
    """The steps, parents first; names must be unique and no step may build on itself."""
    left = {step.name: step for step in steps}
    if len(left) < len(steps):
        raise BadParameterError("two steps have the same name.")
    ordered: list[Step] = []
    while left:
        ready = [step for step in left.values() if not left.keys() & set(step.parents)]
        if not ready:
            raise BadParameterError(f"steps build on each other in a circle: {', '.join(left)}.")
        ordered += ready
        for step in ready:
            del left[step.name]
    return ordered
