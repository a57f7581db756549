"""The command line has the library's defaults, and knows them without importing torch."""

from __future__ import annotations

import inspect
from dataclasses import asdict
from importlib import import_module
from types import ModuleType

import pytest

from stockpot.attack.run import attack
from stockpot.cli import choose, corrupt, explain, fuse, measure, season
from stockpot.cli.options import library_defaults
from stockpot.fuse.request import Options

# A user at a terminal wants the best device there is; a program says which. No engine leaves it to
# `engine_choice`, which takes the one of the library or of the recipe.
OWN = {"device", "engine"}


@pytest.mark.parametrize(
    ("command", "function"),
    [
        (season, "stockpot.season.run:season"),
        (choose, "stockpot.measure.unlabelled.choose:choose"),
        (measure, "stockpot.measure.run:measure"),
        (explain, "stockpot.explain.run:explain"),
        (corrupt, "stockpot.corrupt.apply:corrupt"),
    ],
)
def test_a_command_has_the_defaults_of_its_function(command: ModuleType, function: str) -> None:
    module, _, name = function.partition(":")
    theirs = inspect.signature(getattr(import_module(module), name)).parameters
    shared = 0
    for key, option in inspect.signature(command.command).parameters.items():
        both = key in theirs and inspect.Parameter.empty not in (
            option.default,
            theirs[key].default,
        )
        if both and key not in OWN:
            assert option.default == theirs[key].default, key
            shared += 1
    assert shared >= 2


def test_fusing_has_the_defaults_of_its_options() -> None:
    theirs = asdict(Options())
    options = inspect.signature(fuse.command).parameters
    for key in ("head", "max_shard", "device", "accumulate", "bn", "dtype", "intersect"):
        assert options[key].default == theirs[key], key


def test_defaults_are_read_from_source() -> None:
    assert library_defaults("stockpot.attack.run:attack").eps == (
        inspect.signature(attack).parameters["eps"].default
    )
    with pytest.raises(LookupError):
        library_defaults("stockpot.attack.run:atack")
