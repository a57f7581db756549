"""What the command line prints: tables, progress and the one line of an error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

# Text in brackets, such as stockpot[timm] or an interval, is text and not markup.
out = Console(soft_wrap=True, highlight=False, markup=False)
err = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """A plain table; the first column is left-aligned, columns of numbers are right-aligned."""
    body = [[str(cell) for cell in row] for row in rows]
    grid = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for index, name in enumerate(columns):
        numeric = body and all(_is_number(row[index]) for row in body)
        grid.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in body:
        grid.add_row(*row)
    # Piped output must not be wrapped at an invented width.
    width = None if sys.stdout.isatty() else 200
    Console(highlight=False, markup=False, width=width).print(grid)


def _is_number(text: str) -> bool:
    return text.strip()[:1].isdigit() or text.strip() in ("", "-") or text.strip().startswith("-")


class ImageProgress:
    """A bar on a terminal; elsewhere a plain line every ten seconds."""

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._tasks: dict[str, Any] = {}
        self._last = time.monotonic()
        self.prefix = ""

    def __enter__(self) -> ImageProgress:
        if err.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=err,
                transient=True,
            )
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Say that `done` of `total` images (or steps) are behind us."""
        if self._bar is not None:
            if what not in self._tasks:
                for task in self._tasks.values():
                    self._bar.remove_task(task)
                self._tasks = {what: self._bar.add_task(what, total=total)}
            self._bar.update(self._tasks[what], completed=done, total=total)
        elif time.monotonic() - self._last > 10:
            self._last = time.monotonic()
            err.print(f"  {what}: {done} of {total}")
