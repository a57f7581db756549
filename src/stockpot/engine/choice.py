"""Which engine, with which options: a name, or a mapping with `name` and the engine's parameters.

engine: ray
engine: {name: slurm, slurm_partition: gpu, gpus_per_node: 1}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stockpot.engine import Engine, engines
from stockpot.errors import BadParameterError

EngineChoice = str | Mapping[str, Any]


def engine_name(choice: EngineChoice) -> str:
    """The name of a chosen engine."""
    if isinstance(choice, str):
        return choice
    name = choice.get("name")
    if not isinstance(name, str):
        raise BadParameterError(
            f"engine: expected a name, or a mapping with `name`, got {dict(choice)!r}."
        )
    return name


def checked_engine(choice: EngineChoice) -> tuple[str, dict[str, Any]]:
    """Name and options, with unknown ones refused; nothing is started."""
    name = engine_name(choice)
    given = {} if isinstance(choice, str) else {k: v for k, v in choice.items() if k != "name"}
    return name, engines.get(name).validate(given)


def chosen_engine(choice: EngineChoice) -> Engine:
    """The engine that is meant, ready for jobs."""
    name, options = checked_engine(choice)
    engine: Engine = engines.get(name)(**options)
    return engine
