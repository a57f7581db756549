"""An attack on the images of a batch, some of them beside the others on a processor's cores.

Every image is attacked by itself, with a seed of its own, so nobody can tell. Not only the passes
run side by side then: so do the moves between them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from stockpot.attack.task import Outcome, Task
from stockpot.attack.victim import Victim
from stockpot.engine.lanes import part_size, side_by_side
from stockpot.models.forward.apart import CPU_PIECE

_FEWEST = 16
"""Images that are worth two turns."""


def attacked(
    function: Callable[..., Outcome], victim: Victim, task: Task, settings: Mapping[str, Any]
) -> Outcome:
    """What a method finds, in parts where model and method can be asked by two at a time.

    Args:
        function: the method.
        victim: the model, prepared.
        task: the images.
        settings: of the method.
    """
    # What somebody else wrote may keep things from one call to the next.
    ours = function.__module__.startswith("stockpot.attack.")
    if not ours or len(task) < _FEWEST or not victim.apart(task.images):
        return function(victim, task, **settings)
    rows = torch.split(torch.arange(len(task)), part_size(len(task), CPU_PIECE))
    return joined(side_by_side(lambda own: function(victim, task.take(own), **settings), rows))


def joined(parts: Sequence[Outcome]) -> Outcome:
    """The outcomes of parts of a batch as one."""
    first = parts[0]
    whole = {
        item.name: torch.cat([getattr(part, item.name) for part in parts])
        for item in fields(first)
        if isinstance(getattr(first, item.name), Tensor)
    }
    # A part in which nobody stood any more has planned less; all are planned for alike.
    whole["planned"] = torch.full_like(whole["planned"], int(whole["planned"].max()))
    stages = {name: torch.cat([part.stages[name] for part in parts]) for name in first.stages}
    return replace(first, **whole, stages=stages, needs=max(part.needs for part in parts))
