"""Repeating a part of a run with several seeds.

In a recipe `seeds: [0, 1, 2]` stands for three entries: `NAME-s0`, `NAME-s1` and `NAME-s2`, each
trained with its seed. Where such an entry refers to another one with seeds, run n refers to run n;
where an entry without seeds lists it, it gets all of its runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_RUN = re.compile(r"(?P<name>.+)-s(?P<seed>\d+)")
_SECTIONS = ("harden", "fuse", "season")
_REFERENCES = ("model", "base", "teacher")


def run_name(name: str, seed: int) -> str:
    """The name of one run of an entry."""
    return f"{name}-s{seed}"


def name_of(run: str) -> str:
    """The entry that a run belongs to; other names as they are."""
    found = _RUN.fullmatch(run)
    return found["name"] if found else run


def spread(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe (as plain values) with every entry that has `seeds` written out."""
    runs = {
        name: entry["seeds"]
        for section in _SECTIONS
        for name, entry in _entries(recipe, section).items()
        if _has_seeds(entry)
    }
    if not runs:
        return dict(recipe)
    result = dict(recipe)
    for section in _SECTIONS:
        if section not in recipe or not isinstance(recipe[section], dict):
            continue
        result[section] = written = {}
        for name, entry in recipe[section].items():
            for seed in runs.get(name, [None]):
                own = entry if seed is None else _run(entry, seed, trained=section == "harden")
                label = name if seed is None else run_name(name, seed)
                written[label] = _resolved(own, seed, runs)
    block = recipe.get("measure")
    if isinstance(block, dict):
        result["measure"] = _listed(block, runs)
        if isinstance(block.get("with"), list):
            result["measure"]["with"] = [
                _listed(entry, runs) if isinstance(entry, dict) else entry
                for entry in block["with"]
            ]
    return result


def _entries(recipe: Mapping[str, Any], section: str) -> dict[str, Any]:
    found = recipe.get(section)
    return found if isinstance(found, dict) else {}


def _has_seeds(entry: Any) -> bool:
    seeds = entry.get("seeds") if isinstance(entry, dict) else None
    # Anything else under this key is left for the schema to complain about.
    return (
        isinstance(seeds, list)
        and bool(seeds)
        and all(isinstance(s, int) and s >= 0 for s in seeds)
    )


def _run(entry: Mapping[str, Any], seed: int, *, trained: bool) -> dict[str, Any]:
    own = {key: value for key, value in entry.items() if key != "seeds"}
    return own | {"seed": seed} if trained else own


def _resolved(entry: Any, seed: int | None, runs: Mapping[str, Sequence[int]]) -> Any:
    if not isinstance(entry, dict):
        return entry
    entry = dict(entry)
    for key in _REFERENCES:
        name = entry.get(key)
        if isinstance(name, str) and seed is not None and seed in runs.get(name, ()):
            entry[key] = run_name(name, seed)
    if isinstance(entry.get("models"), list):
        entry["models"] = _expanded(entry["models"], seed, runs)
    return entry


def _listed(block: Mapping[str, Any], runs: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    models = block.get("models")
    return dict(block) | (
        {"models": _expanded(models, None, runs)} if isinstance(models, list) else {}
    )


def _expanded(names: list[Any], seed: int | None, runs: Mapping[str, Sequence[int]]) -> list[Any]:
    found: list[Any] = []
    for name in names:
        seeds = runs.get(name, ()) if isinstance(name, str) else ()
        if seed is not None and seed in seeds:
            seeds = (seed,)
        found += [run_name(name, each) for each in seeds] or [name]
    return found
