"""The same card on every engine: the same results, how much faster, and what a cell costs.

    python benchmarks/engines.py                           # serial and processes, two workers
    python benchmarks/engines.py --engines serial,processes,ray,slurm --recipe recipes/demo.yaml

Cells are attacks on a small network, one for each seed: a processor does nothing else meanwhile.
Every engine runs them once to start and once for the clock. With a recipe, that is run instead, and
all result files are compared but for time stamps and costs. Needs a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from stockpot.measure.run import measure
from stockpot.run.follow import run

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
    measure(
        models, attack, data="icons", data_options={"limit": images}, out=folder, engine=engine,
        device="cpu",
    )  # fmt: skip
    return time.perf_counter() - start


def results(folder: Path) -> dict[str, Any]:
    """Result files by name, without when, where and at what cost."""
    found = {}
    for path in sorted((folder / "results").glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["key"]["measure"] == "cost":
            document["scores"] = [score["metric"] for score in document["scores"]]
            document["notes"] = []
        found[path.name] = {k: v for k, v in document.items() if k not in ("cost", "provenance")}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--engines", default="serial,processes")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cells", type=int, default=8)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--recipe")
    parser.add_argument("--set", nargs="*", default=[], help="values of the recipe to change")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch

    torch.set_num_threads(1)
    first: tuple[float, dict[str, Any]] | None = None
    print(
        "| engine | seconds | times serial | an empty cell | result files |\n|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as place:
        for name in options.engines.split(","):
            engine = chosen(name, Path(place), options.workers)
            if options.recipe:
                start = time.perf_counter()
                changed = dict(pair.split("=", 1) for pair in options.set)
                run(options.recipe, out=Path(place) / name, engine=engine, **changed)
                took, empty = time.perf_counter() - start, 0.0
            else:
                card(Path(place) / f"{name}-start", engine, options.workers, 2)
                many = card(Path(place) / f"{name}-many", engine, 4 * options.workers, 1)
                few = card(Path(place) / f"{name}-few", engine, 2 * options.workers, 1)
                empty = (many - few) / (2 * options.workers)
                took = card(Path(place) / name, engine, options.cells, options.images)
            found = results(Path(place) / name)
            if first is None:
                first = (took, found)
            same = "as of the first" if found == first[1] else "DIFFERENT"
            speed = first[0] / took
            line = f"| {name} | {took:.1f} | {speed:.2f} | {empty:.2f} s | {len(found)}, {same} |"
            print(line, flush=True)


if __name__ == "__main__":
    main()
