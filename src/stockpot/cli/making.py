"""Making the models of a recipe, several at a time where the engine can."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from stockpot.cli.console import err
from stockpot.cli.make import make_model
from stockpot.cli.plan import build_order, parents
from stockpot.recipe import Recipe, RecipeFile


class Order(NamedTuple):
    """One model to make; a plain value that another process understands."""

    recipe: Recipe
    name: str
    folder: Path


def make_models(file: RecipeFile, folder: Path, engine: str) -> None:
    """Make what is missing; with several workers, models that do not need each other together.

    A model that fails does not stop those beside it; the first failure is raised afterwards.
    """
    missing = []
    for name in build_order(file):
        if (folder / "models" / name).exists():
            err.print(f"{name}: already made")
        else:
            missing.append(name)
    if engine == "serial":
        for name in missing:
            make_model(file.recipe, name, folder)
        return
    from stockpot.engine import engines

    for wave in waves(missing, parents(file.recipe)):
        # A fusion without data takes less time than starting a process for it; and one training
        # alone gains nothing elsewhere.
        quick = [n for n in wave if n in file.recipe.fuse and not file.recipe.fuse[n].data]
        quick = wave if len(wave) - len(quick) == 1 else quick
        for name in quick:
            make_model(file.recipe, name, folder)
        orders = [Order(file.recipe, name, folder) for name in wave if name not in quick]
        if not orders:
            continue
        failed = [
            outcome.error
            for outcome in engines.get(engine)().run(make_order, orders)
            if outcome.error is not None
        ]
        if failed:
            raise failed[0]


def waves(missing: list[str], made_from: dict[str, list[str]]) -> list[list[str]]:
    """Names in groups; each group needs only what is there already or in groups before it."""
    left, groups = list(missing), []
    while left:
        ready = [name for name in left if not set(made_from[name]) & set(left)]
        groups.append(ready)
        left = [name for name in left if name not in ready]
    return groups


def make_order(order: Order) -> str:
    """Make one model, in whatever process this is."""
    make_model(order.recipe, order.name, order.folder)
    return order.name
