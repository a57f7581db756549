"""Commands that are killed and started again, and what must be there in the end.

A command runs in a folder of its own, undisturbed for the measure of things; then again and again,
each time disturbed at another moment: itself killed, at a change that it makes to its files or
after a share of its time, or one of its workers. Killed itself it is started again; in the end it
must have ended well, with the same files, the same content in them up to time stamps and costs, no
file beside them, and no process left.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from chaos.killed_commands import Task
from chaos.traces import MARK, contents, differences, processes_of, stray_processes, workers_of
from processes import Running, _command
from stockpot.engine.worker import end_with_parent

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree", "open"}
_LOOK = 0.05


@dataclass
class Whole:
    """What an undisturbed run has left, and with how much computing and how many changes."""

    files: dict[str, Any]
    seconds: float
    changes: int
    size: int
    """Bytes of its files."""


@dataclass
class Tried:
    """A run that was disturbed, and what is wrong with what came of it."""

    code: int
    hit: bool = True
    """Whether it was still under way."""
    wrong: list[str] = field(default_factory=list)


def whole(task: Task, folder: Path) -> Whole:
    """An undisturbed run."""
    prepare(task, folder)
    mark = _new_mark()
    running = _start(task, folder, None, mark)
    seconds = 0.0
    while running.poll() is None:
        seconds = max(seconds, _computed(mark, running))
        time.sleep(_LOOK)
    done = running.wait()
    assert done.returncode == 0, f"{task.name}: {done.stderr}"
    changes = int((folder.parent / f"{folder.name}.changes").read_text())
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Whole(contents(folder), seconds, changes, size)


def disturbed(
    task: Task,
    folder: Path,
    expected: Whole,
    *,
    change: int | None = None,
    share: float = 0.0,
    number: signal.Signals = signal.SIGKILL,
    worker: int | None = None,
) -> Tried:
    """A run that is disturbed once, and one that goes on.

    Args:
        task: the command.
        folder: where, empty.
        expected: what must come of it.
        change: kill it just before the change of this number.
        share: otherwise stop it after this share of the computing of a whole run, which on a
            busy machine is a better clock.
        number: the signal.
        worker: kill one of its workers instead, drawn by this seed; then it must end well itself.
    """
    prepare(task, folder)
    mark = _new_mark()
    first = _start(task, folder, change, mark)
    tried = Tried(0)
    if change is None:
        while first.poll() is None and _computed(mark, first) < share * expected.seconds:
            time.sleep(_LOOK)
        if worker is not None:
            tried.hit = _kill_worker(task, mark, first, worker)
        elif first.poll() is None:
            first.send(number)
        else:
            tried.hit = False
    stopped = first.wait()
    tried.code = stopped.returncode
    allowed = (0,) if worker is not None else (0, -number, 128 + number)
    if stopped.returncode not in allowed:
        tried.wrong.append(f"stopped with exit code {stopped.returncode}: {stopped.stderr[-300:]}")
    # A server that workers would have forked from imports to the end what it has begun to.
    patience = 15.0 + 5.0 * expected.seconds
    tried.wrong += stray_processes(mark, first.number, patience)
    if worker is None:
        second = _start(task, folder, None, mark)
        again = second.wait()
        if again.returncode:
            code, told = again.returncode, again.stderr[-300:]
            tried.wrong.append(f"started again: exit code {code}: {told}")
        elif change is not None and stopped.returncode == 0:
            tried.wrong.append(f"there was no change {change}")
        tried.wrong += stray_processes(mark, second.number, patience)
    tried.wrong += list(differences(expected.files, contents(folder)))
    return tried


def _new_mark() -> str:
    return f"{os.getpid()}-{time.monotonic_ns()}"


def _computed(mark: str, command: Running) -> float:
    return sum(one.seconds for one in processes_of(mark, command.number))


def _kill_worker(task: Task, mark: str, command: Running, seed: int) -> bool:
    """Kill one as soon as there is any; says whether there was before the command ended."""
    while command.poll() is None:
        if found := workers_of(task.engine, mark, command.number):
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(random.Random(seed).choice(found), signal.SIGKILL)
                return True
        time.sleep(_LOOK)
    return False


def prepare(task: Task, folder: Path) -> None:
    """The folder of a run, with its recipe."""
    folder.mkdir(parents=True, exist_ok=True)
    if task.recipe is not None:
        (folder / "recipe.yaml").write_text(yaml.safe_dump(dict(task.recipe), sort_keys=False))


def _start(task: Task, folder: Path, change: int | None, mark: str) -> Running:
    counter = folder.parent / f"{folder.name}.changes"
    return Running(
        _counted, str(counter), str(folder), change, *task.words, cwd=folder, env={MARK: mark}
    )


def _counted(counter: str, folder: str, last: int | None, *words: str) -> None:
    """The command, with its changes of files under a folder counted; killed before the last."""
    os.setsid()  # what it forks is known by its session
    end_with_parent()  # a Ctrl-C does not reach it there
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


def forget(folder: Path) -> None:
    """Remove the folder of a trial."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.with_name(f"{folder.name}.changes").unlink(missing_ok=True)
