"""The commands that are killed, over models and data so small that each does about a second's work.

Every command runs here in one process, and those with `--engine` on the other engines too: less
work there, as a job of another engine begins with a new interpreter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pico import make_dataset
from run_recipes import pico_recipe

JOBS = "jobs"
"""Where submitit keeps jobs and logs, in the folder of a command."""
ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "processes": ("-e", "workers=2"),
    "ray": ("-e", "workers=2"),
    "slurm": ("-e", "cluster=local", "-e", "poll=0.1", "-e", f"folder={JOBS}", "-e", "workers=2"),
}


@dataclass(frozen=True)
class Task:
    """A command with the files that it is given."""

    name: str
    words: tuple[str, ...]
    recipe: Mapping[str, Any] | None = None
    engine: str = "serial"


def tasks(place: Path, *, make: bool = True) -> dict[str, Task]:
    """The commands, in one process; what they are given is made unless it is there."""
    data = place / "toy.npz"
    if make:
        place.mkdir(parents=True)
        _save_data(data)
    recipe = pico_recipe(place, data, make=make)
    recipe["fuse"]["informed"]["save"] = "learned"
    a, b, base, toy = (str(place / name) for name in ("a", "b", "base", "toy.npz"))
    here = ("--engine", "serial")
    learn = ("--task", toy, "--task", toy, "-p", "steps=4")
    train = ("--data", toy, "-o", "out", "-p", "epochs=2", "-p", "batch_size=8")
    grid = ("--name", "contrast,fog", "--severity", "1-2")
    search = ("--space", "scale=0.1:1.5", "--trials", "4", "--sampler", "random", "--test", toy)
    found = [
        Task("run", ("run", "recipe.yaml", "-o", "out", *here), recipe),
        Task("fuse", ("fuse", "ties", a, b, "--base", base, "-o", "out")),
        Task("learn", ("fuse", "adamerging", a, b, "--base", base, "-o", "out", *learn)),
        Task("harden", ("harden", "nominal", a, *train)),
        Task("season", ("season", "grid", a, b, "--data", toy, "--shots", "8", "-o", "out")),
        Task("corrupt", ("corrupt", toy, "out", *grid, *here)),
        Task(
            "measure",
            ("measure", a, b, "--data", toy, "--with", "clean,calibration", "-o", "out", *here),
        ),
        Task(
            "tune",
            (
                *("tune", "task_arithmetic", a, b, "--base", base, "-o", "out"),
                *("--data", str(place / "judged.npz"), *search),
            ),
        ),
    ]
    return {task.name: task for task in found}


def elsewhere(place: Path, here: Mapping[str, Task]) -> list[Task]:
    """The same commands on the other engines; `place` is that of `tasks`."""
    whole = here["run"].recipe
    assert whole is not None
    few = {key: whole[key] for key in ("version", "device", "data", "report")} | {
        "models": {name: whole["models"][name] for name in ("a", "b")},
        "fuse": {"soup": whole["fuse"]["soup"]},
        "measure": {
            "models": ["a", "soup"],
            "with": [whole["measure"]["with"][0]],
        },
    }
    a, b, toy = (str(place / name) for name in ("a", "b", "toy.npz"))
    found = [
        Task("corrupt", (*here["corrupt"].words[:-1], "processes"), engine="processes"),
        Task("run", (*here["run"].words[:-1], "processes"), whole, "processes"),
    ]
    for engine, options in ELSEWHERE.items():
        on = ("-o", "out", "--engine", engine, *options)
        found.append(
            Task("measure", ("measure", a, b, "--data", toy, "--with", "clean", *on), None, engine)
        )
        if engine != "processes":
            found.append(Task("run", ("run", "recipe.yaml", *on), few, engine))
    return found


def _save_data(path: Path) -> None:
    """Pictures to learn from and to be tested on, and others beside them to tune on."""
    import numpy as np

    toy = make_dataset(64)
    pixels = toy.images.pixels.permute(0, 2, 3, 1).numpy()  # type: ignore[attr-defined]
    labels, classes = toy.labels.numpy(), np.array(toy.classes)
    np.savez(path, images=pixels[:40], labels=labels[:40], classes=classes)
    judged = path.with_name("judged.npz")
    np.savez(judged, images=pixels[40:], labels=labels[40:], classes=classes)
