"""What is wrong with the parameters of a method, in one sentence for each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from stockpot.errors import BadParameterError, did_you_mean, listed, shortened


def bad_parameter(method: str, known: list[str], problem: ValidationError) -> BadParameterError:
    """What is wrong with the parameters that were given to a method, and which it takes."""
    by_name: dict[str, list[Any]] = {}
    for error in problem.errors():
        by_name.setdefault(str(error["loc"][0]) if error["loc"] else "?", []).append(error)
    parts = [_complaint(name, errors, known) for name, errors in by_name.items()]
    takes = listed(known, 140) if known else "no parameters"
    return BadParameterError(
        f"{method}: {' '.join(parts)}",
        hint=f"It takes: {takes}.",
        parameter=next(iter(by_name), ""),
    )


def beyond(value: Any) -> int | float | None:
    """A number in a value that networks cannot hold: beyond 64 bits, or beyond float32."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if abs(value) > 2**63 else None
    if isinstance(value, float):
        return value if not abs(value) <= 1e38 else None
    inner = value.values() if isinstance(value, Mapping) else value
    if not isinstance(inner, list | tuple | set | frozenset) and inner is value:
        return None
    return next((found for part in inner if (found := beyond(part)) is not None), None)


def _complaint(name: str, errors: list[Any], known: list[str]) -> str:
    """One sentence about one parameter; a union has one error for each of its types."""
    first = errors[0]
    if first["type"] == "extra_forbidden":
        return f"unknown parameter {shortened(name, 60)!r}.{did_you_mean(name, known)}"
    if first["type"] == "missing":
        return f"parameter {name!r} is required."
    if first["type"] == "user_error":  # the type's own words, which may begin with its name
        return f"{name}: {first['msg'].removeprefix(f'{name}: ')}"
    messages = dict.fromkeys(error["msg"][0].lower() + error["msg"][1:] for error in errors)
    choices = re.findall(r"'([^']*)'", str(first.get("ctx", {}).get("expected", "")))
    near = did_you_mean(str(first["input"]), choices) if first["type"] == "literal_error" else ""
    return f"{name}: {' or '.join(messages)}, got {shortened(repr(first['input']), 80)}.{near}"
