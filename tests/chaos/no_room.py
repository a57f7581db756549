"""Commands whose output folder cannot be written, or whose disk fills up while they write.

    python tests/chaos/no_room.py --sizes 6          # every command; needs to be root, to mount

Each must end in one line and exit code 1, with nothing half-written; and once there is room the
same command must come to what an undisturbed one leaves. Disks are file systems in memory.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos.killed_commands import Task, tasks
from chaos.kills import Whole, prepare, whole
from chaos.traces import contents, differences
from processes import Finished, Running, _command

PAGE = 4096


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[None]:
    """A disk of so many bytes at a folder; fails where this user may not mount."""
    folder.mkdir(parents=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)],
        check=True,
        capture_output=True,
    )
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def remount(folder: Path, options: str) -> None:
    """Change a disk: its size, or whether it can be written."""
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)


def read_only(task: Task, folder: Path) -> list[str]:
    """What is wrong with how a command meets a folder that cannot be written."""
    with small_disk(folder, 1 << 20):
        prepare(task, folder)
        before = contents(folder)
        remount(folder, "ro")
        wrong = list(_untold(_run(task, folder), folder))
        return wrong + list(differences(before, contents(folder)))


def filled_up(task: Task, folder: Path, expected: Whole | None, size: int) -> list[str]:
    """What is wrong with how a command meets a disk of a size.

    And, where it is known what must come of it, with what comes of it once the disk is larger.
    """
    with small_disk(folder, size):
        prepare(task, folder)
        done = _run(task, folder)
        wrong = list(_untold(done, folder)) if done.returncode else []
        hidden = [str(path.relative_to(folder)) for path in folder.rglob(".*")]
        wrong += [f"{name} is left" for name in hidden if not _is_kept(name)]
        if expected is None:
            return wrong
        remount(folder, "size=64m")
        again = _run(task, folder)
        if again.returncode:
            wrong.append(f"with room: exit code {again.returncode}: {again.stderr[-300:]}")
        return wrong + list(differences(expected.files, contents(folder)))


def _is_kept(name: str) -> bool:
    """What a training, or a search for weights, keeps on purpose to go on from."""
    return ".resume" in name or ".partial" in name


def _run(task: Task, folder: Path) -> Finished:
    return Running(_command, *task.words, cwd=folder).wait()


def _untold(done: Finished, folder: Path) -> Iterator[str]:
    """What is wrong with what a command says; 3 is for cells with others beside them saved."""
    if done.returncode != (3 if any(folder.glob("out/results/*.json")) else 1):
        yield f"exit code {done.returncode}"
    told = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    if len(told) != 1 or "Traceback" in done.stderr:
        yield f"not one line: {done.stderr[-400:]}"


def main() -> None:
    """Every command on a disk that cannot be written, and on disks too small by any amount."""
    parser = argparse.ArgumentParser(description="Run commands where there is no room.")
    parser.add_argument("--sizes", type=int, default=3, help="disks for each command")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--only", action="append")
    chosen = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    faults = 0
    with tempfile.TemporaryDirectory(prefix="stockpot-chaos-") as name:
        place = Path(name)
        for task in tasks(place / "given").values():
            if task.name not in (chosen.only or [task.name]):
                continue
            expected = whole(task, place / f"whole-{task.name}")
            found = {"read-only": read_only(task, place / f"ro-{task.name}")}
            for size in sizes(task, expected, chosen.seed, chosen.sizes):
                folder = place / f"full-{task.name}-{size}"
                found[f"{size >> 10} KB"] = filled_up(task, folder, expected, size)
            for disk, wrong in found.items():
                print(task.name, disk, *(wrong or ["told, and undisturbed with room"]), flush=True)
                faults += bool(wrong)
    sys.exit(1 if faults else 0)


def sizes(task: Task, expected: Whole, seed: int, count: int) -> list[int]:
    """Sizes of disks on which a command comes to different parts of its way, in whole pages."""
    source = random.Random(f"{seed}/{task.name}")
    pages = expected.size // PAGE
    return sorted({PAGE * (2 + source.randrange(pages)) for _ in range(count)})


if __name__ == "__main__":
    main()
