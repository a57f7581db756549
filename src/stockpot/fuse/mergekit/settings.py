"""mergekit's parameters: numbers, gradients over depth and filters, for one tensor at a time.

A list of numbers is a gradient: it is spread over the layers of a slice, the tensors outside of the
layers having its first value. A list of `{filter, value}` holds for the tensors whose name contains
the filter. What says nothing about a tensor leaves the word to the next: the model's entry, then
the slice's, then the recipe's, then the method's default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stockpot.errors import BadParameterError
from stockpot.fuse.parameters import interpolate

Settings = Mapping[str, Any]


def look_up(
    name: str, chain: Sequence[Settings | None], tensor: str, depth: float, default: Any
) -> Any:
    """The value of a parameter for a tensor.

    Args:
        name: the parameter.
        chain: who may say it, the nearest first.
        tensor: the tensor's name, for filters.
        depth: where its layer lies in its slice, from 0 to 1.
        default: the value when nobody says anything.
    """
    for settings in chain:
        if settings and name in settings:
            value = evaluate(settings[name], tensor, depth)
            if value is not None:
                return value
    return default


def evaluate(setting: Any, tensor: str, depth: float) -> Any:
    """A setting's value for a tensor; None where none of its filters holds."""
    if isinstance(setting, Mapping):
        setting = [setting]
    if not isinstance(setting, list):
        return setting
    if setting and all(isinstance(item, Mapping) for item in setting):
        for item in setting:
            if "value" not in item:
                raise BadParameterError(f"expected a filter with a value, got {dict(item)!r}.")
            wanted = item.get("filter")
            if wanted in (None, "*") or str(wanted) in tensor:
                return evaluate(item["value"], tensor, depth)
        return None
    return interpolate(setting, depth)
