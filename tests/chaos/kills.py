"""Commands that are killed and started again, and what must be there in the end.

A command runs in a folder of its own, undisturbed for the measure of things; then again and again,
each time killed at another moment, either at a change that it makes to its files or after a share
of its time. Started again it must end well, with the same files, the same content in them up to
time stamps and costs, no file beside them, and no process left.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pico import make_dataset
from processes import Running, _command
from run_recipes import pico_recipe

MARK = "STOCKPOT_CHAOS"
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree", "open"}
_VARYING = {
    "cost", "provenance", "versions", "seconds", "updated", "wall_seconds", "stages", "started",
    "command", "report_written",
}  # fmt: skip


@dataclass(frozen=True)
class Task:
    """A command with the files that it is given."""

    name: str
    words: tuple[str, ...]
    recipe: Mapping[str, Any] | None = None


@dataclass
class Whole:
    """What an undisturbed run has left, and how long and in how many changes it was made."""

    files: dict[str, Any]
    seconds: float
    changes: int


@dataclass
class Tried:
    """A run that was killed, and what is wrong with what came of it."""

    code: int
    wrong: list[str] = field(default_factory=list)


def tasks(place: Path, engine: str = "serial") -> dict[str, Task]:
    """The commands, over models and data so small that each takes about a second."""
    place.mkdir(parents=True, exist_ok=True)
    data = place / "toy.npz"
    _save_data(data)
    recipe = pico_recipe(place, data)
    recipe["fuse"]["informed"]["save"] = "learned"
    a, b, base = (str(place / name) for name in ("a", "b", "base"))
    on = ("--engine", engine)
    found = [
        Task("run", ("run", "recipe.yaml", "-o", "out", *on), recipe),
        Task("fuse", ("fuse", "ties", a, b, "--base", base, "-o", "out")),
        Task(
            "learn",
            (
                *("fuse", "adamerging", a, b, "--base", base, "-o", "out"),
                *("--task", str(data), "--task", str(data), "-p", "steps=4"),
            ),
        ),
        Task(
            "harden",
            (
                *("harden", "nominal", a, "--data", str(data), "-o", "out"),
                *("-p", "epochs=2", "-p", "batch_size=8"),
            ),
        ),
        Task("season", ("season", "grid", a, b, "--data", str(data), "--shots", "8", "-o", "out")),
        Task(
            "corrupt",
            ("corrupt", str(data), "out", "--name", "contrast,fog", "--severity", "1-2", *on),
        ),
        Task(
            "measure",
            ("measure", a, b, "--data", str(data), "--with", "clean,calibration", "-o", "out", *on),
        ),
    ]
    return {task.name: task for task in found}


def _save_data(path: Path) -> None:
    import numpy as np

    toy = make_dataset()
    pixels = toy.images.pixels.permute(0, 2, 3, 1).numpy()  # type: ignore[attr-defined]
    classes = np.array(toy.classes)
    np.savez(path, images=pixels, labels=toy.labels.numpy(), classes=classes)


def whole(task: Task, folder: Path) -> Whole:
    """An undisturbed run."""
    _prepare(task, folder)
    start = time.monotonic()
    done = _start(task, folder, None).wait()
    assert done.returncode == 0, f"{task.name}: {done.stderr}"
    changes = int((folder.parent / f"{folder.name}.changes").read_text())
    return Whole(contents(folder), time.monotonic() - start, changes)


def disturbed(
    task: Task,
    folder: Path,
    expected: Whole,
    *,
    change: int | None = None,
    share: float = 0.0,
    number: signal.Signals = signal.SIGKILL,
) -> Tried:
    """A run that is stopped once, and one that goes on.

    Args:
        task: the command.
        folder: where, empty.
        expected: what must come of it.
        change: kill it just before the change of this number.
        share: otherwise stop it after this share of the time of a whole run.
        number: the signal.
    """
    _prepare(task, folder)
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    first = _start(task, folder, change, mark)
    if change is None:
        time.sleep(share * expected.seconds)
        if first.poll() is None:
            first.send(number)
    stopped = first.wait()
    tried = Tried(stopped.returncode)
    if stopped.returncode not in (0, -number, 128 + number):
        tried.wrong.append(f"stopped with exit code {stopped.returncode}: {stopped.stderr[-300:]}")
    tried.wrong += _stray_processes(mark)
    again = _start(task, folder, None, mark).wait()
    if again.returncode:
        tried.wrong.append(f"started again: exit code {again.returncode}: {again.stderr[-300:]}")
    elif change is not None and stopped.returncode == 0:
        tried.wrong.append(f"there was no change {change}")
    tried.wrong += _stray_processes(mark)
    tried.wrong += list(differences(expected.files, contents(folder)))
    return tried


def _prepare(task: Task, folder: Path) -> None:
    folder.mkdir(parents=True)
    if task.recipe is not None:
        (folder / "recipe.yaml").write_text(yaml.safe_dump(dict(task.recipe), sort_keys=False))


def _start(task: Task, folder: Path, change: int | None, mark: str = "") -> Running:
    counter = folder.parent / f"{folder.name}.changes"
    return Running(
        _counted, str(counter), str(folder), change, *task.words, cwd=folder, env={MARK: mark}
    )


def _counted(counter: str, folder: str, last: int | None, *words: str) -> None:
    """The command, with its changes of files under a folder counted; killed before the last."""
    count = 0

    def watch(event: str, values: tuple[Any, ...]) -> None:
        nonlocal count
        if event not in CHANGES or not _is_change(event, values, folder):
            return
        count += 1
        if count == last:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    try:
        _command(*words)
    finally:
        seen, folder = count, "/nowhere"
        Path(counter).write_text(str(seen))


def _is_change(event: str, values: tuple[Any, ...], folder: str) -> bool:
    path = values[0]
    if not isinstance(path, str | os.PathLike):
        return False
    place = os.path.join(os.getcwd(), os.fspath(path))
    if not place.startswith(folder):
        return False
    return event != "open" or bool(values[2] & (os.O_WRONLY | os.O_RDWR))


def contents(folder: Path) -> dict[str, Any]:
    """Every file under a folder, by its place, as far as two runs must agree on it."""
    return {
        str(path.relative_to(folder)): _content(path) if path.is_file() else "a folder"
        for path in sorted(folder.rglob("*"))
    }


def _content(path: Path) -> Any:
    if path.suffix == ".json":
        return _lasting(json.loads(path.read_bytes()))
    if path.suffix == ".html":
        # Pages tell costs too, and sort by them; their numbers are those of the result files.
        rows = re.findall(r'<th scope="row"[^>]*>([^<]*)', path.read_text(encoding="utf-8"))
        return sorted(set(rows))
    if path.suffix == ".md":
        return re.sub(r"(?m)^.*seconds.*$|Versions: .*", "", path.read_text(encoding="utf-8"))
    return path.read_bytes()


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lasting(item) for key, item in value.items() if key not in _VARYING}
    return [_lasting(item) for item in value] if isinstance(value, list) else value


def differences(expected: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    """What is missing, stray or different, in words."""
    yield from (f"{name} is missing" for name in expected if name not in found)
    yield from (f"{name} is stray" for name in found if name not in expected)
    yield from (
        f"{name} differs" for name in expected if name in found and expected[name] != found[name]
    )


def _stray_processes(mark: str, seconds: float = 10.0) -> list[str]:
    """Processes of a command that is over."""
    wanted = f"{MARK}={mark}".encode()
    return _gone(lambda: [name for name in _processes() if wanted in _environment(name)], seconds)


def _gone(find: Callable[[], list[str]], seconds: float) -> list[str]:
    limit = time.monotonic() + seconds
    while (left := find()) and time.monotonic() < limit:
        time.sleep(0.05)
    return [f"process {name} is left" for name in left]


def _processes() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()]


def _environment(process: str) -> bytes:
    try:
        return Path(f"/proc/{process}/environ").read_bytes()
    except OSError:
        return b""


def forget(folder: Path) -> None:
    """Remove the folder of a trial."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.with_name(f"{folder.name}.changes").unlink(missing_ok=True)
