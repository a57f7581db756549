"""`stockpot.measure` of the same card on every engine: the same results, and how much faster.

    python benchmarks/engines.py                     # serial and processes, two workers
    python benchmarks/engines.py --engines serial,processes,ray,slurm --seconds 60  # five minutes
    python benchmarks/engines.py --engines serial,processes --recipe recipes/demo.yaml

Cells are attacks on a small network, each of a model by a name of its own: a processor does nothing
else meanwhile. How many images they take is found out first, so that one process with one thread
needs `--seconds`. Every engine runs a card of cells without work to start, two to tell what a cell
costs it, and then the card for the clock; serial is also timed with as many threads as there are
workers. All engines take their turn in each of `--rounds`, and each is held against serial of the
same round: the table has the median over the rounds, and the least and the most for the ratio, as
one round alone is moved by whatever else the processor does.

The floor is what serial, with one thread, spends in the models (the stages `attack` and `forward`
of its results), dealt out to the workers without any loss. With a recipe, that is run instead by
`stockpot.run`, and all result files are compared but for time stamps and costs. Needs a quiet
machine.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import stockpot
from parts.stages import print_stages, read_results, seconds_by_stage
from stockpot.results.schema import CellResult

LOCAL: dict[str, dict[str, Any]] = {"slurm": {"cluster": "local", "poll": 0.1}}


def chosen(name: str, folder: Path, workers: int) -> dict[str, Any] | str:
    if name == "serial":
        return name
    own = LOCAL.get(name, {}) | ({"folder": str(folder / "jobs")} if name == "slurm" else {})
    return {"name": name, "workers": workers, **own}


def card(folder: Path, engine: Any, cells: int, images: int) -> float:
    """Seconds of some cells; each is a model's, as each has a name of its own."""
    models = {f"model-{number}": "icons-nominal" for number in range(cells)}
    attack = {"adversarial": {"norms": "linf", "eps": "8/255", "steps": 20}}
    start = time.perf_counter()
    stockpot.measure(
        models, attack, data="icons", data_options={"limit": images}, out=folder, engine=engine,
        device="cpu",
    )  # fmt: skip
    return time.perf_counter() - start


def results(folder: Path) -> dict[str, Any]:
    """Result files by name, without when, where and at what cost."""
    found = {}
    for path in sorted((folder / "results").glob("*.json")):
        # Models that a run made are named by their place in its folder.
        text = path.read_text(encoding="utf-8").replace(str(folder), "RUN")
        document = json.loads(text)
        if document["key"]["measure"] == "cost":
            document["scores"] = [score["metric"] for score in document["scores"]]
            document["notes"] = []
        found[path.name] = {k: v for k, v in document.items() if k not in ("cost", "provenance")}
    return found


def images_for(place: Path, seconds: float, cells: int) -> int:
    """How many images a cell needs for a card of so many seconds, in one process."""
    card(place / "warm", "serial", 1, 4)
    few, more = 16, 48
    once = card(place / "few", "serial", 1, few)
    rate = (more - few) / max(1e-3, card(place / "more", "serial", 1, more) - once)
    return max(8, min(1000, round(rate * seconds / cells)))


class Row(NamedTuple):
    """What was found of an engine in one round."""

    started: float
    """Seconds of the first card, whose cells have no work: workers start for it."""
    empty: float
    """Seconds that a cell without work adds to a card."""
    took: float
    found: dict[str, Any]
    told: list[CellResult]
    """Its results, with the seconds of every stage."""

    @property
    def work(self) -> float:
        """Seconds in the models, by all that worked."""
        stages = seconds_by_stage(self.told)
        return stages["attack"] + stages["forward"]


def line(name: str, rows: list[Row], serial: list[Row], workers: int) -> str:
    """What is told of an engine, from all rounds."""
    same = all(row.found == serial[0].found for row in rows)
    speeds = [one.took / row.took for one, row in zip(serial, rows, strict=True)]
    above = median(row.took / (one.work / workers) for one, row in zip(serial, rows, strict=True))
    took, started, empty = (
        median(getattr(row, field) for row in rows) for field in ("took", "started", "empty")
    )
    return (
        f"| {name} | {took:.1f} | {median(speeds):.2f} ({min(speeds):.2f} to {max(speeds):.2f}) "
        f"| {above:.2f} | {started:.1f} s | {empty:.2f} s "
        f"| {len(rows[0].found)}, {'as of the first' if same else 'DIFFERENT'} |"
    )


def timed_card(place: Path, name: str, engine: Any, options: argparse.Namespace) -> Row:
    """The card of one engine."""
    started = card(place / f"{name}-start", engine, options.workers, 1)
    few = card(place / f"{name}-few", engine, options.workers, 1)
    many = card(place / f"{name}-many", engine, 4 * options.workers, 1)
    took = card(place / name, engine, options.cells, options.images)
    empty = max(0.0, (many - few) / (3 * options.workers))
    return Row(started, empty, took, results(place / name), read_results(place / name))


def timed_recipe(place: Path, name: str, engine: Any, options: argparse.Namespace) -> Row:
    """A recipe on one engine."""
    start = time.perf_counter()
    changed = dict(pair.split("=", 1) for pair in options.set)
    stockpot.run(options.recipe, out=place / name, engine=engine, **changed)
    took = time.perf_counter() - start
    return Row(0.0, 0.0, took, results(place / name), read_results(place / name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--engines", default="serial,processes", help="serial is the first")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cells", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10, help="of the card in one process")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--images", type=int, help="of a cell; by default by --seconds")
    parser.add_argument("--recipe")
    parser.add_argument("--set", nargs="*", default=[], help="values of the recipe to change")
    options = parser.parse_args()
    if options.engines.split(",")[0] != "serial":
        parser.error("--engines: serial comes first, as the others are held against it")
    if options.set and not options.recipe:
        parser.error("--set changes values of a recipe: give --recipe")
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)
    timed = timed_recipe if options.recipe else timed_card
    names = options.engines.split(",")
    threads = f"serial, {options.workers} threads"
    if not options.recipe:
        names.insert(1, threads)
    rows: dict[str, list[Row]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        if not options.recipe:
            options.images = options.images or images_for(
                Path(folder), options.seconds, options.cells
            )
            print(f"{options.cells} cells of {options.images} images, {options.workers} workers")
        for number in range(options.rounds):
            place = Path(folder) / str(number)
            for name in names:
                torch.set_num_threads(options.workers if name == threads else 1)
                engine = "serial" if name == threads else chosen(name, place, options.workers)
                rows[name].append(timed(place, name, engine, options))
                print(f"round {number + 1}: {name} {rows[name][-1].took:.1f} s", flush=True)
    serial = rows["serial"]
    print("\n| engine | seconds | times serial | of the floor "
          "| start | an empty cell | result files |")  # fmt: skip
    print("|---|---|---|---|---|---|---|")
    for name in names:
        print(line(name, rows[name], serial, options.workers))
    print(f"\nthe floor: {serial[0].work:.1f} s in the models of serial, "
          f"{serial[0].work / options.workers:.1f} s by {options.workers} workers; stages of the "
          "first round, of all workers together:")  # fmt: skip
    for name in names:
        print(name)
        print_stages(rows[name][0].told, serial[0].work, "work of serial")


if __name__ == "__main__":
    main()
