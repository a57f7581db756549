"""Being stopped from outside: at once, or when the step under way is saved.

A program that was told to stop (Ctrl-C, or a scheduler that needs the machine) should lose nothing
that it can still write down. Work that goes in steps and knows how to save itself runs inside
`held_back` and asks `stop_if_asked` after each step; a second signal ends it at once.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """Stopped by a signal. Not a KeyboardInterrupt, which typer would answer with its own code."""

    def __init__(self, number: int = signal.SIGINT, saved: str = "") -> None:
        super().__init__(saved)
        self.number = number
        self.saved = saved
        """What is saved, in words, once somebody who knows has said it."""


_holding = 0
_asked: int | None = None
_waits: Callable[[], None] | None = None


def listen(waits: Callable[[], None]) -> None:
    """Answer the signals of this process by `Interrupted` from now on.

    Args:
        waits: called when one has to wait for a step.
    """
    global _waits
    _waits = waits
    for number in SIGNALS:
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _asked
    if _holding and _asked is None:
        _asked = number
        if _waits:
            _waits()
        return
    raise Interrupted(number)


@contextmanager
def held_back() -> Iterator[None]:
    """Inside, a first signal waits for `stop_if_asked`; one that nobody asked for stops here."""
    global _holding
    _holding += 1
    try:
        yield
        # Only where the block ended well: an error of its own says more.
        stop_if_asked()
    finally:
        _holding -= 1


def stop_asked() -> bool:
    """Whether a signal is waiting."""
    return _asked is not None


def ask_to_stop(number: int = signal.SIGTERM) -> None:
    """Let a signal wait, as if it had come: another process that works with this one was told."""
    global _asked
    if _asked is None:
        _asked = number


def stop_if_asked(saved: str = "") -> None:
    """Stop if a signal is waiting.

    Args:
        saved: what is saved by now, in words for the user.
    """
    global _asked
    if _asked is not None:
        number, _asked = _asked, None
        raise Interrupted(number, saved)


@contextmanager
def telling(saved: Callable[[], str]) -> Iterator[None]:
    """Say of a block what is saved of it should it be interrupted, unless it says so itself."""
    try:
        yield
    except Interrupted as stop:
        stop.saved = stop.saved or saved()
        raise
