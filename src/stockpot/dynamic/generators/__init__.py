"""The generators: autoencoders, and changes that need no weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stockpot.registry import Registry

if TYPE_CHECKING:
    from stockpot.dynamic.generator import Generator

generators: Registry[Callable[..., Generator]] = Registry(
    "generators", noun="generator", package="stockpot.dynamic.generators"
)
