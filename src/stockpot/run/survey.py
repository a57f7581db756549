"""What following a recipe would do, found with the code that does it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from stockpot.errors import UserError
from stockpot.measure.cells import Cell
from stockpot.measure.saved import saved
from stockpot.recipe import RecipeFile
from stockpot.results.store import ResultStore
from stockpot.run.plan import build_order, cells_of, parents
from stockpot.run.reuse import Verdict, judge


class CellState(NamedTuple):
    """One cell, and the file that holds its result or will."""

    cell: Cell
    file: Path | None
    """None where the key is not known before a model is made."""
    there: bool = False
    """Whether it was measured."""
    why: str = ""
    """Why its file is not known, or not read."""

    def __str__(self) -> str:
        return f"{self.cell.model.name} x {self.cell.measure} x {self.cell.data.name}"


class Survey(NamedTuple):
    """Every model that a recipe makes and every cell it measures, with their states."""

    models: list[Verdict]
    cells: list[CellState]

    @property
    def digests(self) -> dict[str, str]:
        """Of the models whose question is known."""
        return {verdict.name: verdict.digest for verdict in self.models if verdict.digest}

    @property
    def files(self) -> list[str]:
        """The names of the cells' files, as far as they are known."""
        return [state.file.name for state in self.cells if state.file is not None]


def survey(file: RecipeFile, folder: Path) -> Survey:
    """Ask what is there and what would be made; nothing is changed."""
    made_from = parents(file.recipe)
    models: dict[str, Verdict] = {}
    for name in build_order(file):
        open_parents = [p for p in made_from[name] if p in models and not models[p].there]
        if open_parents:
            there = (folder / "models" / name).exists()
            why = f"depends on {', '.join(dict.fromkeys(open_parents))}"
            models[name] = Verdict(name, why=why, remade=there)
        else:
            models[name] = judge(file.recipe, name, folder)
    places = {str(folder / "models" / v.name): v.name for v in models.values() if not v.there}
    cells = []
    for cell in cells_of(file.recipe, folder):
        waits = [places[s] for s in (cell.model.source, *cell.params.values()) if _in(s, places)]
        cells.append(CellState(cell, None, why=f"depends on {waits[0]}") if waits else _known(cell))
    return Survey(list(models.values()), cells)


def cell_files(cells: list[Cell]) -> list[str]:
    """The names of the files that hold the cells' results; models must have been made."""
    return [state.file.name for state in map(_known, cells) if state.file is not None]


def _in(source: object, places: dict[str, str]) -> bool:
    return isinstance(source, str) and source in places


def _known(cell: Cell) -> CellState:
    path: Path | None = None
    try:
        key = cell.key()
        path = ResultStore(str(cell.store)).path(key)
        return CellState(cell, path, saved(cell, key) is not None)
    except UserError as problem:
        return CellState(cell, path, why=str(problem))  # measuring says so, and the others go on
