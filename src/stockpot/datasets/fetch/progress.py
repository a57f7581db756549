"""Showing how far a fetch is: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from stockpot.datasets.fetch.source import Progress


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """A progress that writes to standard error for as long as the block lasts."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, TaskID] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total or None)
            bars.update(tasks[what], completed=done, total=total or None)

        yield tell


def _lines() -> Progress:
    begun: set[str] = set()

    def tell(what: str, done: int, total: int) -> None:
        if what not in begun:
            begun.add(what)
            sys.stderr.write(f"{what} ...\n")

    return tell
