"""Pictures decoded before anybody goes through them, while a model is still being loaded.

They lie in `decoded.py` then, where whoever goes through the pictures finds them. One set at a time
is worked on ahead; it ends when somebody goes through pictures, whose own threads then need the
processor, when the set does, or when there is no room for more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from itertools import count

from stockpot.engine.cores import usable_cores

_CHUNK = 8
"""Rows that a thread takes at a time: whoever comes waits for no more than these."""
_FIRST = 2
"""One core in so many decodes pictures that nobody has asked for yet: two that a machine counts may
be one, and who imports modules on the other half of it would take a third longer."""


class Ahead:
    """Threads that go through rows in their order until they are told to stop."""

    def __init__(self, rows: int, decode: Callable[[int, int], bool], threads: int) -> None:
        """Begin.

        Args:
            rows: how many there are.
            decode: decodes those from one to another and says whether there is room for more.
            threads: how many.
        """
        self._rows, self._decode = rows, decode
        self._next, self._ended = count(), threading.Event()
        self._threads: list[threading.Thread] = []
        self.grow(threads)

    def grow(self, threads: int) -> None:
        """Go on with so many threads, if there are fewer."""
        for _ in range(threads - len(self._threads)):
            thread = threading.Thread(target=self._work, name="ahead", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        while not self._ended.is_set():
            start = next(self._next) * _CHUNK
            if start >= self._rows:
                return
            try:
                if not self._decode(start, min(start + _CHUNK, self._rows)):
                    self._ended.set()
            except Exception:  # of whatever kind: who goes through the pictures will hear
                self._ended.set()

    def stop(self) -> None:
        """Take up no more rows, and wait for those that are under way."""
        self._ended.set()
        self.wait()

    def wait(self) -> None:
        """Until all is done."""
        for thread in self._threads:
            thread.join()


_running: tuple[Hashable, Ahead] | None = None
_used = False
_lock = threading.Lock()


def begin(what: Hashable, rows: int, decode: Callable[[int, int], bool]) -> Ahead:
    """Work ahead on a set of pictures, unless that is what is worked on."""
    with _lock:
        return _begin(what, rows, decode, usable_cores())


def begin_first(what: Hashable, rows: int, decode: Callable[[int, int], bool]) -> None:
    """The same on what is likely to be wanted; somebody who knew more may have been here before.

    Cores are left to those who import modules and torch meanwhile: nothing can be asked before they
    are done.
    """
    with _lock:
        if not _used:
            _begin(what, rows, decode, max(1, usable_cores() // _FIRST))


def _begin(what: Hashable, rows: int, decode: Callable[[int, int], bool], threads: int) -> Ahead:
    global _running, _used
    _used = True
    if _running is not None and _running[0] == what:
        _running[1].grow(threads)
        return _running[1]
    if _running is not None:
        _running[1].stop()
    _running = (what, Ahead(rows, decode, threads))
    return _running[1]


def end() -> None:
    """Somebody goes through pictures."""
    global _running, _used
    with _lock:
        found, _running, _used = _running, None, True
    if found is not None:
        found[1].stop()
