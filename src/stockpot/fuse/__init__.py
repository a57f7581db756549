"""Many checkpoints in, one out; one file per method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stockpot.registry import Kind, Tags
from stockpot.verbs import speak


@dataclass(frozen=True, kw_only=True)
class FuserTags(Tags):
    """What a fusion method needs and what it keeps."""

    needs_base: bool = False
    """It works on changes from a common base."""
    takes_base: bool = False
    """Where a base is given, it works on changes from it, else on the weights themselves."""
    pair: bool = False
    """A base, where one is given, is the first of its two models."""
    members: int | None = None
    """It fuses exactly so many."""
    at_least: int = 1
    """It fuses no fewer."""
    stacks: bool = False
    """Its members' layers are put one upon the other first, and it fuses what that makes."""
    together: bool = False
    """Its members answer together: it makes a folder, and no state dict."""
    linear: bool = False
    """Its result is a weighted sum, so that BatchNorm statistics may be mixed alike."""
    symmetric: bool = False
    """The order of the members does not matter."""
    heavy: bool = False
    """It does so much arithmetic for each weight that an accelerator is worth the way there."""
    learns: bool = False
    """It looks at models as a whole, and may look at data."""
    needs_data: bool = False
    """It cannot do without data, unless it loads what it had learned."""
    each: bool = True
    """A list of datasets has one for each member."""
    apart: bool = False
    """Its members were trained from different starts: it moves their units, and with them
    BatchNorm's statistics, and they have no base in common."""


fusers = Kind[Callable[..., Any]]("fusers", noun="fusion method", package="stockpot.fuse").tagged(
    FuserTags
)
speak(__name__, "stockpot.fuse.run:fuse")

__all__ = ["fusers"]
