"""The generators: autoencoders, and changes that need no weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from stockpot.errors import UnknownNameError
from stockpot.registry import Kind, Tags
from stockpot.types import Check, Reference

if TYPE_CHECKING:
    from stockpot.dynamic.generator import Generator

generators = Kind[Callable[..., "Generator"]](
    "generators", noun="generator", package="stockpot.dynamic.generators"
).tagged(Tags)


def _known(value: Any) -> Any:
    if value not in generators:
        raise UnknownNameError(generators.noun, str(value), generators.names())
    return value


GeneratorRef = Annotated[str, Check(_known), Reference("generator")]
"""The name of a generator."""
