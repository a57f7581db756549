"""The kinds of finishing step, told apart by type.

Both see one matrix at a time: what the fusion changed in it, and the slab with base and members.
Tensors that are no matrices stay as they were fused, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from stockpot.fuse.fuser import Slab

Finish = Callable[[Tensor, Slab], Tensor]
"""From the merged change of a matrix to the one that takes its place."""


@dataclass(frozen=True)
class Finisher:
    """A step that needs nothing but the matrix."""

    finish: Finish


@dataclass(frozen=True)
class SurveyFinisher:
    """A step that looks at all matrices before it changes one."""

    look: Callable[[Tensor, Slab], Any]
    """What is to be known of a matrix."""
    settle: Callable[[Mapping[str, Any]], Finish]
    """From what is known of all, by tensor name, to the step."""
