"""Many checkpoints in, one out; one file per method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stockpot.registry import Registry
from stockpot.verbs import speak

fusers: Registry[Callable[..., Any]] = Registry(
    "fusers", noun="fusion method", package="stockpot.fuse"
)
speak(__name__, "stockpot.fuse.run:fuse")
