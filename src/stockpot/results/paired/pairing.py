"""Which results of two sides answer the same question, and why others do not."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stockpot.errors import UnknownNameError, UserError
from stockpot.remote.address import address
from stockpot.results.paired.answers import shared
from stockpot.results.schema import CellResult
from stockpot.results.store import load_results
from stockpot.results.summary.comparable import asked_with

Results = str | Path | CellResult | Sequence[CellResult]
Side = Mapping[str, list[CellResult]]
"""By model."""


class Matched(NamedTuple):
    """Cells of two models that answer the same question, and what has no counterpart."""

    cells: list[tuple[CellResult, CellResult]]
    left_out: list[str]


def by_model(given: Results, chosen: str, option: str) -> dict[str, list[CellResult]]:
    """The cells of one side by model; `FOLDER:MODEL` means one model of a folder."""
    if isinstance(given, str | Path):
        given, named = _place(str(given))
        if named and chosen and named != chosen:
            raise UserError(f"{given}:{named}: --{option} names another model, {chosen}.")
        chosen = chosen or named
        cells: Sequence[CellResult] = load_results(given)
    else:
        cells = [given] if isinstance(given, CellResult) else given
    found: dict[str, list[CellResult]] = {}
    for cell in cells:
        found.setdefault(cell.key.model, []).append(cell)
    if chosen and chosen not in found:
        raise UnknownNameError(f"model ({option})", chosen, found)
    return {chosen: found[chosen]} if chosen else found


def _place(given: str) -> tuple[str, str]:
    """A path, and a model's name where one follows."""
    path, colon, model = given.rpartition(":")
    if address(given):  # the first colon is its own, and another may stand before a port
        return (path, model) if "/" not in model else (given, "")
    if colon and not Path(given).exists() and Path(path).exists():
        return path, model
    return given, ""


def pairs(first: Side, second: Side) -> list[tuple[str, str]]:
    """Which model is compared with which: those of one name, or the only two."""
    if len(first) == len(second) == 1:
        return [(next(iter(first)), next(iter(second)))]
    if found := [(name, name) for name in first if name in second]:
        return found
    raise UserError(
        f"the two sides have no model in common: {', '.join(first)} and {', '.join(second)}.",
        hint="Choose one of each: --model NAME --against NAME.",
    )


def matched(first: Sequence[CellResult], second: Sequence[CellResult]) -> Matched:
    """Each cell with the one of the other side that answers the same question.

    Where a side answers one question several times (with other seeds, in another precision), those
    that were asked alike come first.
    """
    found, left_out = [], []
    for cell in sorted(first, key=asked_with):
        others = [other for other in second if _place_of(other) == _place_of(cell)]
        alike = [other for other in others if not unlike(cell, other)]
        if alike:
            one_model([own for own in first if _place_of(own) == _place_of(cell)
                       and not unlike(own, alike[0])])  # fmt: skip
            found.append((cell, counterpart(cell, alike)))
        else:
            why = unlike(cell, others[-1]) if others else "not measured there"
            left_out.append(f"{_named(cell)}: {why}")
    found.sort(key=lambda pair: asked_with(pair[0]) != asked_with(pair[1]))
    known = set(map(_place_of, first))
    left_out += [
        f"{_named(other)}: not measured by the first"
        for other in second
        if _place_of(other) not in known
    ]
    return Matched(found, left_out)


def counterpart(cell: CellResult, alike: Sequence[CellResult]) -> CellResult:
    """Of results that answer a cell's question the one that was asked as it was, or the first.

    Raises:
        UserError: they are of several models.
    """
    one_model(alike)
    return min(alike, key=lambda other: (asked_with(other) != asked_with(cell), asked_with(other)))


def one_model(cells: Sequence[CellResult]) -> None:
    """Refuse results of one question under one name that are of several models.

    They lie in one folder where a model was changed in its place, or measured with other options;
    nobody can tell which is meant.
    """
    models: dict[tuple[str, str, str], CellResult] = {}
    for cell in cells:
        own = cell.key.model_fingerprint, cell.key.words, _written(cell.key.model_options)
        models.setdefault(own, cell)
    if len(models) > 1:
        which = ", ".join(sorted(cell.key.model_fingerprint[:8] for cell in models.values()))
        raise UserError(
            f"{_named(cells[0])}: {len(models)} models of that name are there ({which}).",
            hint="Name the result file that is meant, or measure each under a name of its own.",
        )


def _place_of(cell: CellResult) -> tuple[str, str]:
    return cell.key.measure, cell.key.data


def _named(cell: CellResult) -> str:
    return f"{cell.key.model}, {cell.key.measure} on {cell.key.data}"


def unlike(first: CellResult, second: CellResult) -> str:
    """Why two cells cannot be paired; empty when they can."""
    if first.data.fingerprint != second.data.fingerprint or first.data.n != second.data.n:
        return f"other images ({first.data.n} and {second.data.n})"
    if other := otherwise(first.key.params, second.key.params):
        return f"other settings ({', '.join(other)})"
    made = first.key.contents, second.key.contents
    if other := [name for name in made[0].keys() & made[1] if made[0][name] != made[1][name]]:
        return f"other pictures ({', '.join(sorted(other))})"
    rules = [_rule(cell) for cell in (first, second)]
    if all(rules) and rules[0] != rules[1]:
        return f"other convention ({' and '.join(rules)})"
    return "" if shared(first, second) else "no record of single images"


def otherwise(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Parameters that differ, however they are written: `1-3` is `1,2,3` and [1, 2, 3]."""
    keys = sorted({*first, *second})
    return [key for key in keys if _written(first.get(key)) != _written(second.get(key))]


def _written(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(_written, value))
    if isinstance(value, str):
        return _RANGE.sub(_spelled_out, re.sub(r"\s*,\s*", ",", value.strip()))
    if isinstance(value, Mapping):
        return json.dumps(value, sort_keys=True, default=str)
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:g}" if plain else str(value)


_RANGE = re.compile(r"(?<![\w.-])(\d+)-(\d+)(?![\w.-])")


def _spelled_out(found: re.Match[str]) -> str:
    return ",".join(map(str, range(int(found[1]), int(found[2]) + 1)))


def _rule(cell: CellResult) -> str:
    """The named rule of the numbers; what follows it may tell of the model, as where images that
    were found on it come from. Settings are compared by themselves."""
    return cell.convention.partition(";")[0].strip()
