"""Dynamic evaluation: generators change images, oracles say whether the class still stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stockpot.registry import Registry

if TYPE_CHECKING:
    from stockpot.dynamic.generator import Generator
    from stockpot.dynamic.oracle import Oracle

generators: Registry[Callable[..., Generator]] = Registry(
    "generators", noun="generator", package="stockpot.dynamic"
)
oracles: Registry[Callable[..., Oracle]] = Registry(
    "oracles", noun="oracle", package="stockpot.dynamic"
)
