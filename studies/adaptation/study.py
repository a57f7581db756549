"""The adaptation study: methods on streams, as recipes/adaptation.yaml has them, several at a time.

    stockpot data get cifar10
    python studies/adaptation/study.py --workers 8
    python studies/adaptation/tables.py runs/adaptation

What is finished lies in runs/adaptation; stopped and started again, it goes on. `--small` is for
two cores. The shorter streams of several trainings, for what plan.md has added:

    export OMP_NUM_THREADS=1 MALLOC_MMAP_THRESHOLD_=1000000000 MALLOC_TRIM_THRESHOLD_=10000000000
    python studies/adaptation/study.py --runs runs/adaptation-trainings --trainings runs/trainings
    python studies/adaptation/tables.py runs/adaptation-trainings trainings
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from stockpot.engine.processes import Processes
from stockpot.engine.schedule import Step, schedule
from stockpot.measure.cells import Cell
from stockpot.measure.run import run_cells
from stockpot.recipe import RecipeFile, load_recipe
from stockpot.run.check import check
from stockpot.run.plan import cells_of

sys.path.append(str(Path(__file__).parents[1]))
from trainings import add_options, asked_for

RECIPE = "recipes/adaptation.yaml"
METHODS = ("source", "bn", "tent", "sar", "eata", "cotta", "roid")
STREAMS = {
    ("single", "shuffled", False): "single",
    ("continual", "shuffled", False): "continual",
    ("mixed", "shuffled", False): "mixed",
    ("continual", "dirichlet", False): "continual, runs of labels",
    ("continual", "shuffled", True): "continual, batches of 4",
}
"""Stream, order and whether few pictures come at once -> how tables call it."""
AGAIN = ("source", "bn", "tent", "sar", "eata", "roid")
NETWORK = "cifar10-nominal"
PICTURES = 400
"""Methods, network and pictures of each corruption of what several trainings are asked."""
FEW = "-few"
"""Ends the name of data of which few pictures are shown, in small batches."""


def smaller(file: RecipeFile) -> list[str]:
    """Overrides for two cores: fewer pictures, corruptions and pictures in a batch."""
    found = [f"data.{name}.limit=250" for name in file.recipe.data]
    names = "[gaussian_noise,defocus_blur,fog,jpeg_compression]"
    for at, entry in enumerate(file.raw["measure"]["with"]):
        asked = {"corruptions": names, "attacked": 0, "batch": min(entry["batch"], 50)}
        found += [f"measure.with.{at}.{key}={value}" for key, value in asked.items()]
    return found


def fewer(file: RecipeFile, limit: int, batch: int = 200) -> list[str]:
    """Overrides for a processor: so many pictures, half of the larger ones, 64 attacked."""
    found = [f"data.cifar10.limit={limit}", f"data.icons.limit={limit // 2}"]
    for at, entry in enumerate(file.raw["measure"]["with"]):
        found.append(f"measure.with.{at}.attacked={min(entry['attacked'], 64)}")
        found.append(f"measure.with.{at}.batch={min(entry['batch'], batch)}")
    return found


def trained_again(network: str, pictures: int, folder: Path) -> list[Cell]:
    """What one training is asked; `source` answers alike on every stream and meets one."""
    file = load_recipe(RECIPE, [])
    less = [f"data.cifar10.limit={pictures}", *(f"models.{name}.load={network}" for name in AGAIN)]
    less += [f"measure.with.{at}.attacked=0" for at in range(len(file.raw["measure"]["with"]))]
    file = load_recipe(RECIPE, less)
    check(file)
    return [
        cell
        for cell in cells_of(file.recipe, folder)
        if cell.data.name == "cifar10"
        and cell.model.name in AGAIN
        and (cell.model.name != "source" or cell.params["stream"] == "single")
    ]


def carry_out(cell: Cell) -> None:
    """Measure one method on one stream."""
    run_cells([cell])


def cheap_first(cells: list[Cell]) -> list[Cell]:
    """One dataset after the other; then small batches (many steps), then CoTTA (35 passes)."""

    def place(cell: Cell) -> tuple[bool, bool, bool]:
        slow, few = cell.model.name.endswith("cotta"), cell.data.name.endswith(FEW)
        return slow, few, cell.data.name.startswith("icons")

    return sorted(cells, key=place)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="start none after these"
    )
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--small", action="store_true", help="fewer pictures and corruptions")
    parser.add_argument("--limit", type=int, default=0, help="so many pictures of CIFAR-10")
    parser.add_argument("--batch", type=int, default=200, help="pictures at a time, with --limit")
    parser.add_argument("--only", action="append", help="these methods and data alone")
    parser.add_argument("--pictures", type=int, default=PICTURES, help="with --trainings")
    add_options(parser)
    given = parser.parse_args()
    if given.trainings or given.training:
        cells = [
            cell
            for number, lying in asked_for(given).items()
            for cell in trained_again(lying[NETWORK], given.pictures, given.runs / number)
        ]
        carry_out_all(cells, given.workers, given.seconds)
        return
    file = load_recipe(RECIPE, [])
    if given.small or given.limit:
        less = smaller(file) if given.small else fewer(file, given.limit, given.batch)
        file = load_recipe(RECIPE, less)
    check(file)
    folder = given.runs / ("adaptation_small" if given.small else "adaptation")
    cells = cheap_first(cells_of(file.recipe, folder))
    if given.only:
        cells = [c for c in cells if {c.model.name, c.data.name} <= set(given.only)]
    carry_out_all(cells, given.workers, given.seconds)


def carry_out_all(cells: Sequence[Cell], workers: int, seconds: float) -> None:
    """Several at a time."""
    steps = [Step(f"{number} {_named(cell)}", (), cell) for number, cell in enumerate(cells)]
    start = time.monotonic()
    for end in schedule(carry_out, steps, engine=Processes(workers), deadline=start + seconds):
        passed = time.monotonic() - start
        print(f"{passed:4.0f} s  {end.name}: {end.state} {end.error or ''}", flush=True)


def _named(cell: Cell) -> str:
    asked = cell.params
    return f"{cell.model.name} {cell.data.name} {asked['stream']} {asked['order']} {asked['batch']}"


if __name__ == "__main__":
    main()
