"""Follow recipes with many processes at once: each model is measured by the process that made it.

`stockpot run --engine processes` makes all models first, in waves, and measures afterwards. Here a
model is made as soon as its parents are there, and its results are on disk right after, so that
little is lost when time runs out. Models and results land where `stockpot run` expects them.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import NamedTuple

import yaml

from stockpot.recipe import Recipe, load_recipe
from stockpot.recipe.file import RecipeFile


class Task(NamedTuple):
    """One model of a recipe, as plain values that a worker can be sent."""

    recipe: Recipe
    name: str
    folder: Path


def carry_out(task: Task) -> tuple[str, float, float]:
    """Make a model unless it is there, then measure it; seconds for both."""
    from stockpot.measure.run import run_cells
    from stockpot.run.make import make_model
    from stockpot.run.plan import cells_of

    start = time.monotonic()
    if not (task.folder / "models" / task.name).exists():
        make_model(task.recipe, task.name, task.folder)
    made = time.monotonic()
    run_cells([c for c in cells_of(task.recipe, task.folder) if c.model.name == task.name])
    return task.name, made - start, time.monotonic() - made


class Kitchen:
    """Worker processes that live through several recipes, with the data they have loaded."""

    def __init__(self, workers: int, deadline: float = float("inf")) -> None:
        self.workers, self.deadline = workers, deadline
        self.start = time.monotonic()
        os.environ["OMP_NUM_THREADS"] = "1"
        # Forked processes cannot use a GPU, so workers start from nothing.
        self.pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))

    def follow(
        self,
        recipe: str,
        folder: Path,
        overrides: Iterable[str] = (),
    ) -> bool:
        """Make and measure the models of a recipe, the first seed of each first.

        Args:
            recipe: its path.
            folder: the run folder.
            overrides: as for `stockpot run --set`.

        Returns:
            Whether everything was done before the deadline.
        """
        from stockpot.run.check import check
        from stockpot.run.plan import build_order, parents

        file = load_recipe(recipe, list(overrides))
        check(file)
        _remember(file, folder)
        made_from = parents(file.recipe)
        waiting = [n for n in sorted(build_order(file), key=_seed) if n not in file.recipe.models]
        finished = {name for name in made_from if (folder / "models" / name).exists()}
        running: dict[Future[tuple[str, float, float]], str] = {}
        lost: set[str] = set()
        while (waiting or running) and time.monotonic() < self.deadline:
            for name in list(waiting):
                needed = [parent for parent in made_from[name] if parent in made_from]
                if lost & set(needed):
                    waiting.remove(name)
                    lost.add(name)
                    self.say(f"{name}: not made, for lack of {', '.join(lost & set(needed))}")
                elif len(running) < self.workers and finished >= set(needed):
                    waiting.remove(name)
                    task = Task(file.recipe, name, folder)
                    running[self.pool.submit(carry_out, task)] = name
            if not running:
                break
            left = min(max(0.0, self.deadline - time.monotonic()), 3600.0)
            done, _ = wait(running, timeout=left, return_when=FIRST_COMPLETED)
            for future in done:
                name = running.pop(future)
                if (problem := future.exception()) is not None:
                    lost.add(name)
                    self.say(f"{name}: {type(problem).__name__}: {problem}")
                    continue
                finished.add(name)
                _, making, measuring = future.result()
                self.say(f"{name}: made in {making:.1f} s, measured in {measuring:.1f} s")
        complete = not waiting and not running and not lost
        self.say(f"{recipe}: {'complete' if complete else 'not complete'}")
        return complete

    def say(self, text: str) -> None:
        """One line of the log, with the seconds since the start."""
        print(f"{time.monotonic() - self.start:6.1f}  {text}", flush=True)

    def close(self) -> None:
        """Let the workers go; those that still work are stopped."""
        self.pool.shutdown(wait=False, cancel_futures=True)
        for worker in multiprocessing.active_children():
            worker.terminate()


def _seed(name: str) -> int:
    """The seed in the name of a run; what has none comes first."""
    _, mark, seed = name.rpartition("-s")
    return int(seed) if mark and seed.isdigit() else -1


def _remember(file: RecipeFile, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(file.raw, sort_keys=False, allow_unicode=True)
    (folder / "recipe.yaml").write_text(text, encoding="utf-8")
