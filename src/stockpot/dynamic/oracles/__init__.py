"""The oracles: dual encoders, classifiers, several of them together, and people."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from stockpot.errors import UnknownNameError
from stockpot.registry import Kind, Tags
from stockpot.types import Check, Reference

if TYPE_CHECKING:
    from stockpot.dynamic.oracle import Oracle

oracles = Kind[Callable[..., "Oracle"]](
    "oracles", noun="oracle", package="stockpot.dynamic.oracles"
).tagged(Tags)

NO_ORACLE = "none"
"""In place of an oracle's name: every label is taken on trust."""


def _known(value: Any) -> Any:
    if value not in [*oracles.names(), NO_ORACLE]:
        raise UnknownNameError(oracles.noun, str(value), [*oracles.names(), NO_ORACLE])
    return value


OracleRef = Annotated[str, Check(_known), Reference("oracle")]
"""The name of an oracle, or `none`."""
