"""Training that makes a model robust; one loop, one file per method."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stockpot.registry import Registry
from stockpot.verbs import speak

if TYPE_CHECKING:
    from stockpot.harden.loop import Objective

hardeners: Registry[Callable[..., Objective]] = Registry(
    "hardeners", noun="hardening method", package="stockpot.harden"
)
speak(__name__, "stockpot.harden.run:harden")
