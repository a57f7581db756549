"""Whether something that cannot work is refused as it should be."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from stockpot.errors import LONGEST, UserError

LONGEST_MESSAGE = LONGEST + 10
LONGEST_TIME = 5.0


class _TooLong(BaseException):
    pass


def unkind(action: Callable[[], object], folder: Path) -> str:
    """What is wrong with the way in which an action fails; nothing where it fails kindly.

    Kindly: a `UserError` of one printable line as long as messages may be, within five seconds of
    work (a busy machine may take longer for them), and every file below `folder` is as it was.
    """
    before = _files(folder)
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
    return ""


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

    # By the work done, and for what waits without working by the clock.
    clocks = {signal.SIGPROF: signal.ITIMER_PROF, signal.SIGALRM: signal.ITIMER_REAL}
    before = {number: signal.signal(number, stop) for number in clocks}
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 12 * seconds)
    try:
        yield
    finally:
        for number, clock in clocks.items():
            signal.setitimer(clock, 0)
            signal.signal(number, before[number])
