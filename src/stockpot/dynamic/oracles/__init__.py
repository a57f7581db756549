"""The oracles: dual encoders, classifiers, several of them together, and people."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stockpot.registry import Registry

if TYPE_CHECKING:
    from stockpot.dynamic.oracle import Oracle

oracles: Registry[Callable[..., Oracle]] = Registry(
    "oracles", noun="oracle", package="stockpot.dynamic.oracles"
)
