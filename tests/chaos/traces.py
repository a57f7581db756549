"""What a command has left: its files, and its processes."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from chaos.killed_commands import JOBS

MARK = "STOCKPOT_CHAOS"
_VARYING = {
    "cost", "provenance", "versions", "seconds", "updated", "wall_seconds", "stages", "started",
    "command", "report_written",
}  # fmt: skip


def contents(folder: Path) -> dict[str, Any]:
    """Every file under a folder, by its place, as far as two runs must agree on it."""
    places = [
        path for path in sorted(folder.rglob("*")) if path.relative_to(folder).parts[0] != JOBS
    ]
    return {
        str(path.relative_to(folder)): _content(path) if path.is_file() else "a folder"
        for path in places
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
    if path.suffix == ".db":  # the trials of a search, which its tune.json tells too
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as opened:
            sound = opened.execute("PRAGMA integrity_check").fetchall()
            return sound, opened.execute("SELECT number, state FROM trials").fetchall()
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


_TICKS = os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """A process as the system tells of it."""

    number: int
    parent: int
    words: str
    seconds: float
    """Of computing, with those of its children that have ended."""


def processes_of(mark: str, session: int) -> list[Process]:
    """The command that leads a session, and all that it started.

    What was forked stays in the session; what was started anew has the mark among its variables,
    and may have a session of its own.
    """
    wanted = f"{MARK}={mark}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            place = Path("/proc", name)
            facts = (place / "stat").read_text(errors="replace").rpartition(")")[2].split()
            state, parent, _, its_session = facts[:4]
            ours = int(its_session) == session or wanted in (place / "environ").read_bytes()
            words = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it is gone, or another user's
        if ours and state not in "ZX":
            found.append(
                Process(int(name), int(parent), words, sum(map(int, facts[11:15])) / _TICKS)
            )
    return sorted(found)


def workers_of(engine: str, mark: str, command: int) -> list[int]:
    """The processes that do a command's jobs."""
    found = processes_of(mark, command)
    if engine == "processes":  # forks of a server that the command started
        servers = {one.number for one in found if one.parent == command}
        return [one.number for one in found if one.parent in servers and "forkserver" in one.words]
    if engine == "ray":
        # Such as `ray::IDLE` and `ray::_carry_out`; with an agent (`ray::RuntimeEnvAgent`) its node
        # ends, which here is the whole cluster.
        own = [one for one in found if one.words.startswith("ray::")]
        return [one.number for one in own if "Agent" not in one.words]
    return [one.number for one in found if "submitit" in one.words]


def stray_processes(mark: str, session: int, seconds: float) -> list[str]:
    """Processes of a command that is over, and still are there after some seconds."""
    return [
        f"process {one.number} is left: {one.words[:80]}"
        for one in _gone(lambda: processes_of(mark, session), seconds)
    ]


def _gone(find: Callable[[], list[Process]], seconds: float) -> list[Process]:
    limit = time.monotonic() + seconds
    while (left := find()) and time.monotonic() < limit:
        time.sleep(0.05)
    return left
