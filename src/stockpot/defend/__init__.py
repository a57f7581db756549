"""Defences that wrap a classifier.

A defence is a function from a classifier to a classifier. Most change what the model sees, keep its
classes and preprocessing, and are measured like any other model. Those that adapt (`adapt/` and
`episodic/`) change the model by what it is asked: they have a contract of their own
(`adapt/adapting.py`), and only measures that know of it take them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stockpot.registry import Kind, Tags


@dataclass(frozen=True, kw_only=True)
class DefenceTags(Tags):
    """What is said of a defence beside its signature."""

    adapts: bool = False
    """Whether the model changes by being asked, so that its answers depend on a stream."""


defences = Kind[Callable[..., Any]]("defences", noun="defence", package="stockpot.defend").tagged(
    DefenceTags
)

__all__ = ["DefenceTags", "defences"]
