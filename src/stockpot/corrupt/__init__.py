"""The ImageNet-C corruptions as batched, seeded functions on any device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stockpot.registry import Registry

corruptions: Registry[Callable[..., Any]] = Registry(
    "corruptions", noun="corruption", package="stockpot.corrupt"
)
