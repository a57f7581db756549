"""Entries that stand for several models: one per seed, one per value of a parameter, or both.

In a recipe `seeds: [0, 1, 2]` stands for the models `NAME-s0`, `NAME-s1` and `NAME-s2`, each
trained with its seed, and `sweep: {scale: [0.1, 0.2]}` of a fusion for `NAME-scale=0.1` and
`NAME-scale=0.2`. Where an entry with seeds refers to another one with seeds, run n refers to run n;
where an entry without them lists it, it gets all of its runs, and so does a list of models that
names a sweep.

A label names a folder and a row. What it stands for is kept beside it as a `Variant`, and never
read back from the label: `vit-s16` may well be a model's own name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from stockpot.types import Variant

_SECTIONS = ("harden", "fuse", "season", "tune")


class WrittenOut(NamedTuple):
    """A recipe with one entry per model, and what each label stands for."""

    recipe: dict[str, Any]
    variants: dict[str, Variant]
    clashes: list[tuple[str, str]]
    """Places (section, label) where a label is the name of another entry too."""


def write_out(recipe: Mapping[str, Any]) -> WrittenOut:
    """A recipe (as plain values) with every entry that stands for several models written out."""
    variants: dict[str, Variant] = {}
    clashes: list[tuple[str, str]] = []
    sections = {title: _entries(recipe, title) for title in _SECTIONS}
    taken = {name for entries in sections.values() for name in entries}
    result = dict(recipe)
    for title, entries in sections.items():
        for name, entry in entries.items():
            for variant in _variants(title, name, entry):
                if variant.label in taken or variant.label in variants:
                    clashes.append((title, variant.label))
                variants[variant.label] = variant
    for title, entries in sections.items():
        if not isinstance(recipe.get(title), dict):
            continue
        result[title] = written = {}
        for name, entry in entries.items():
            own = [variant for variant in variants.values() if variant.entry == name]
            for variant in own:
                written[variant.label] = _written(title, entry, variant, variants)
            if not own:
                written[name] = _resolved(entry, None, variants)
    for title in ("measure", "similarity"):
        if isinstance(recipe.get(title), dict):
            result[title] = _resolved(recipe[title], None, variants)
    if isinstance(block := result.get("measure"), dict) and isinstance(block.get("with"), list):
        block["with"] = [_resolved(entry, None, variants) for entry in block["with"]]
    return WrittenOut(result, variants, clashes)


def meant(name: str, seed: int | None, variants: Mapping[str, Variant]) -> list[str]:
    """The labels that a name means to an entry with this seed; the name itself if it is plain."""
    known = [variant for variant in variants.values() if variant.entry == name]
    same = [variant for variant in known if seed is not None and variant.seed == seed]
    return [variant.label for variant in same or known] or [name]


def _entries(recipe: Mapping[str, Any], section: str) -> dict[str, Any]:
    found = recipe.get(section)
    return found if isinstance(found, dict) else {}


def _variants(section: str, name: str, entry: Any) -> Iterator[Variant]:
    if not isinstance(entry, dict):
        return
    # What is neither a list of seeds nor a sweep is left for the schema to complain about.
    seeds = entry["seeds"] if _are_seeds(entry.get("seeds")) else [None]
    swept = entry["sweep"] if section == "fuse" and _is_sweep(entry.get("sweep")) else {}
    points = [{key: value} for key, values in swept.items() for value in values] or [{}]
    if seeds == [None] and points == [{}]:
        return
    for point in points:
        for seed in seeds:
            yield Variant(name, seed, point)


def _are_seeds(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(seed, int) and seed >= 0 for seed in value)
    )


def _is_sweep(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and len(value) == 1
        and all(isinstance(values, list) and values for values in value.values())
    )


def _written(
    section: str, entry: Mapping[str, Any], variant: Variant, variants: Mapping[str, Variant]
) -> Any:
    used = {"seeds"} if variant.seed is not None else set()
    used |= {"sweep"} if variant.sweep else set()
    own = {key: value for key, value in entry.items() if key not in used} | dict(variant.sweep)
    if section == "harden" and variant.seed is not None:
        own["seed"] = variant.seed
    return _resolved(own, variant.seed, variants)


def _resolved(entry: Any, seed: int | None, variants: Mapping[str, Variant]) -> Any:
    if not isinstance(entry, dict):
        return entry
    entry = dict(entry)
    for key in ("model", "base"):
        if isinstance(name := entry.get(key), str):
            found = meant(name, seed, variants)
            entry[key] = found[0] if len(found) == 1 else name
    if isinstance(names := entry.get("models"), list):
        entry["models"] = [
            label
            for name in names
            for label in (meant(name, seed, variants) if isinstance(name, str) else [name])
        ]
    return entry
