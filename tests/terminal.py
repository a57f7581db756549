"""`stockpot` in a terminal of its own: what a person sees while it runs, and their Ctrl-C."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import sys
import time
from pathlib import Path

from processes import ENVIRONMENT, _command, _forks

CTRL_C = b"\x03"


class Terminal:
    """A process that has a terminal, 100 columns wide, and all that it wrote there."""

    def __init__(self, *words: str | Path, cwd: Path) -> None:
        self._screen, inside = pty.openpty()
        environment = {**os.environ, **ENVIRONMENT, "COLUMNS": "100", "TERM": "xterm"}
        arguments = (os.ttyname(inside), [*map(str, words)], str(cwd), environment)
        self.process = _forks.Process(target=_enter, args=arguments)
        self.process.start()
        self._inside = inside  # kept open until the child has it too
        self.raw = b""

    @property
    def text(self) -> str:
        """What was written, without colours and moves of the cursor."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.raw.decode(errors="replace"))

    def until(self, pattern: str, seconds: float = 120) -> None:
        """Read on until something is there."""
        limit = time.monotonic() + seconds
        while not re.search(pattern, self.text):
            assert time.monotonic() < limit, self.text[-2000:]
            assert self._read() or self.process.is_alive(), self.text[-2000:]

    def press(self, keys: bytes) -> None:
        os.write(self._screen, keys)

    def end(self, seconds: float = 120) -> int:
        """Wait for the process; its exit code."""
        limit = time.monotonic() + seconds
        while self.process.is_alive():
            assert time.monotonic() < limit, self.text[-2000:]
            self._read()
        while self._read():
            pass
        os.close(self._inside)
        os.close(self._screen)
        assert self.process.exitcode is not None
        return self.process.exitcode

    def _read(self) -> bool:
        if not select.select([self._screen], [], [], 0.05)[0]:
            return False
        self.raw += os.read(self._screen, 65536)
        return True


def _enter(screen: str, words: list[str], cwd: str, environment: dict[str, str]) -> None:
    os.setsid()  # the terminal that is opened next is then the one whose Ctrl-C arrives here
    opened = os.open(screen, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(opened, number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8") for number in (1, 2))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    _command(*words)
