"""The generators: autoencoders, and changes that need no weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from stockpot.errors import UnknownNameError
from stockpot.registry import Kind, Tags
from stockpot.types import Check, Reference

if TYPE_CHECKING:
    from stockpot.dynamic.generator import Generator


@dataclass(frozen=True, kw_only=True)
class GeneratorTags(Tags):
    """What a generator can make."""

    holds: tuple[str, ...] = ()
    """Corruptions of the benchmark that its changes are, or come near. One that takes names of
    corruptions (`corruptions`) holds these."""


generators = Kind[Callable[..., "Generator"]](
    "generators", noun="generator", package="stockpot.dynamic.generators"
).tagged(GeneratorTags)


def _known(value: Any) -> Any:
    if value not in generators:
        raise UnknownNameError(generators.noun, str(value), generators.names())
    return value


GeneratorRef = Annotated[str, Check(_known), Reference("generator")]
"""The name of a generator."""
