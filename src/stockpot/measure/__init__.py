"""Measures: each looks at one model on one dataset and yields scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stockpot.registry import Registry

measures: Registry[Callable[..., Any]] = Registry(
    "measures", noun="measure", package="stockpot.measure"
)
