"""Input-side defences that wrap a classifier.

A defence is a function from a classifier to a classifier: it changes what the model sees, keeps its
classes and preprocessing, and is measured like any other model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stockpot.registry import Kind, Tags

defences = Kind[Callable[..., Any]]("defences", noun="defence", package="stockpot.defend").tagged(
    Tags
)

__all__ = ["defences"]
