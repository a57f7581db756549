"""Making one fusion with several values of a parameter.

In a recipe `sweep: {scale: [0.1, 0.2]}` stands for two entries, `NAME-scale=0.1` and
`NAME-scale=0.2`. Where a list of models names the entry, it gets all of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

SWEPT = re.compile(r"(?P<name>.+)-(?P<key>[a-z_]+)=(?P<value>[^=]+)")
"""The name of one point of a sweep."""


def entry_of(point: str) -> str:
    """The entry that a point of a sweep belongs to; other names as they are."""
    found = SWEPT.fullmatch(point)
    return found["name"] if found else point


def spread_sweeps(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe (as plain values) with every fusion that has a `sweep` written out."""
    result = dict(recipe)
    fusions = recipe.get("fuse")
    if not isinstance(fusions, dict):
        return result
    points: dict[str, list[str]] = {}
    result["fuse"] = written = {}
    for name, entry in fusions.items():
        if not _is_sweep(entry):
            written[name] = entry
            continue
        ((key, values),) = entry["sweep"].items()
        plain = {other: value for other, value in entry.items() if other != "sweep"}
        for value in values:
            label = f"{name}-{key}={value}"
            written[label] = {**plain, key: value}
            points.setdefault(name, []).append(label)
    block = recipe.get("measure")
    if points and isinstance(block, dict):
        result["measure"] = _listed(block, points)
        if isinstance(block.get("with"), list):
            result["measure"]["with"] = [
                _listed(entry, points) if isinstance(entry, dict) else entry
                for entry in block["with"]
            ]
    return result


def _is_sweep(entry: Any) -> bool:
    # Anything else under this key is left for the method's schema to complain about.
    sweep = entry.get("sweep") if isinstance(entry, dict) else None
    return (
        isinstance(sweep, dict)
        and len(sweep) == 1
        and all(isinstance(values, list) and values for values in sweep.values())
    )


def _listed(block: Mapping[str, Any], points: Mapping[str, list[str]]) -> dict[str, Any]:
    models = block.get("models")
    if not isinstance(models, list):
        return dict(block)
    names = [label for name in models for label in points.get(name, [name])]
    return dict(block) | {"models": names}
