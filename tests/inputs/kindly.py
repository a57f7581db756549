"""Whether something that cannot work is refused as it should be."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from stockpot.errors import UserError

LONGEST_MESSAGE = 400
LONGEST_TIME = 5.0


class _TooLong(BaseException):
    pass


def unkind(action: Callable[[], object], folder: Path) -> str:
    """What is wrong with the way in which an action fails; nothing where it fails kindly.

    Kindly: a `UserError` of one printable line shorter than 400 characters, within five seconds,
    and every file below `folder` is as it was.
    """
    before = _files(folder)
    start = time.monotonic()
    try:
        with _at_most(LONGEST_TIME):
            action()
    except UserError as problem:
        said = str(problem)
    except _TooLong:
        return f"it is still at it after {LONGEST_TIME} s"
    except BaseException as problem:
        return f"a traceback: {type(problem).__name__}: {str(problem)[:200]}"
    else:
        return "it was taken"
    if not said or not said.isprintable():
        return f"not one printable line: {said!r}"
    if len(said) >= LONGEST_MESSAGE:
        return f"{len(said)} characters: {said}"
    if changed := before ^ _files(folder):
        return f"it left or took {sorted(name for name, _ in changed)}"
    return "" if time.monotonic() - start < LONGEST_TIME else "too slow"


def _files(folder: Path) -> set[tuple[str, bytes]]:
    return {
        (str(path.relative_to(folder)), path.read_bytes() if path.stat().st_size < 10**6 else b"")
        for path in folder.rglob("*")
        if path.is_file()
    }


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
