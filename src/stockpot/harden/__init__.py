"""Training that makes a model robust; one loop, one file per method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from stockpot.registry import Kind, Tags
from stockpot.verbs import speak

if TYPE_CHECKING:
    from stockpot.harden.objective import Objective


@dataclass(frozen=True, kw_only=True)
class HardenerTags(Tags):
    """Which parts of a model a method trains."""

    head: Literal["fixed", "trained"] = "fixed"
    """Whether a text head becomes weights that are trained."""
    towers: Literal["image", "both"] = "image"
    """Of a dual encoder, its image tower or both."""
    texts: bool = False
    """Whether it reads the text tower of a dual encoder without training it."""
    whole: str = ""
    """Why it needs the whole model in every process, and so cannot train it in shards."""
    holds: tuple[str, ...] = ()
    """Corruptions of the benchmark that its own changes of pictures are, or come near."""


hardeners = Kind[Callable[..., "Objective"]](
    "hardeners", noun="hardening method", package="stockpot.harden"
).tagged(HardenerTags)
speak(__name__, "stockpot.harden.run:harden")

__all__ = ["hardeners"]
