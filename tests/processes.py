"""`stockpot` in processes of its own: real exit codes, streams and signals, imported only once.

Every process is a fork of one server that has imported the packages and done nothing else, so that
a command costs what it does and not the seconds that importing torch takes. What depends on the
imports themselves (how quick `--help` is) starts an interpreter instead.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from stockpot.engine.processes import PRELOADED

ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "200"}

# A server of Python 3.11 knows only the path that it was started with, and says nothing of modules
# that it does not find.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
)
PRELOADED[:] = ["preloaded"]  # the engine's workers are forks of the same server
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(PRELOADED)


class Finished(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


class Running:
    """A process and what it prints."""

    def __init__(
        self,
        function: Callable[..., object],
        *arguments: object,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="stockpot-process-")
        self._streams = [Path(self._folder.name) / name for name in ("out", "err")]
        for path in self._streams:  # there for `wait`, however early the process is killed
            path.touch()
        environment = {**os.environ, **ENVIRONMENT, **(env or {})}
        self._process = _forks.Process(
            target=_enter,
            args=(function, arguments, str(cwd or Path.cwd()), environment, self._streams),
        )
        self._process.start()

    @property
    def number(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def told(self) -> str:
        """What came on standard error so far."""
        return self._streams[1].read_text(encoding="utf-8")

    def send(self, number: signal.Signals) -> None:
        os.kill(self.number, number)

    def wait(self, seconds: float = 300) -> Finished:
        self._process.join(seconds)
        code = self._process.exitcode
        if code is None:
            self._process.kill()
            raise TimeoutError(f"the process did not end in {seconds} s")
        out, err = (path.read_text(encoding="utf-8") for path in self._streams)
        self._folder.cleanup()
        return Finished(code, out, err)


def start(*words: str | Path, cwd: Path | None = None) -> Running:
    """Begin `stockpot WORDS`."""
    return Running(_command, *map(str, words), cwd=cwd)


def stockpot(*words: str | Path, cwd: Path | None = None) -> Finished:
    """`stockpot WORDS`, from the first line to the exit code."""
    return start(*words, cwd=cwd).wait()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def in_two(function: Callable[..., object], *arguments: object) -> None:
    """Call a function in two processes that find each other as those of torchrun do."""
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    running = [
        Running(function, *arguments, env=shared | {"RANK": number, "LOCAL_RANK": number})
        for number in ("0", "1")
    ]
    ended = [process.wait() for process in running]
    assert [process.returncode for process in ended] == [0, 0], ended


def error_of(result: Finished, code: int = 1) -> str:
    """The one line of a user error."""
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, result.stderr
    return lines[0]


def _command(*words: str) -> None:
    from stockpot.cli.main import main

    sys.argv = ["stockpot", *words]
    main()


def _enter(
    function: Callable[..., object],
    arguments: tuple[object, ...],
    cwd: str,
    environment: dict[str, str],
    streams: list[Path],
) -> None:
    for number, path in enumerate(streams, start=1):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8") for number in (1, 2))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    function(*arguments)
