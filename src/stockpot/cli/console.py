"""What the command line prints: tables, progress and the one line of an error."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

# Text in brackets, such as stockpot[timm] or an interval, is text and not markup.
out = Console(soft_wrap=True, highlight=False, markup=False)
err = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """A plain table; the first column is left-aligned, columns of numbers are right-aligned.

    Headings break between words alone. Where not all columns fit side by side, the rest follow
    below, each time with the first column again.
    """
    body = [[str(cell) for cell in row] for row in rows]
    # Piped output must not be wrapped at an invented width.
    room = shutil.get_terminal_size((200, 24)).columns
    widths = [_least_width(name, [row[at] for row in body]) for at, name in enumerate(columns)]
    for part, kept in enumerate(_side_by_side(widths, room)):
        if part:
            out.print()
        _block(columns, body, kept, title if part == 0 else "", widths, room)


def _block(
    columns: Sequence[str],
    body: Sequence[Sequence[str]],
    kept: Sequence[int],
    title: str,
    widths: Sequence[int],
    room: int,
) -> None:
    grid = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    free = room - sum(widths[at] for at in kept) - 2 * (len(kept) - 1)
    for at in kept:
        cells = [row[at] for row in body]
        whole = max(map(len, [columns[at], *cells]))
        width = min(whole, widths[at] + max(free, 0), room)
        free -= max(width - widths[at], 0)
        numeric = cells and all(map(_is_number, cells))
        justify: Literal["left", "right"] = "right" if numeric else "left"
        grid.add_column(columns[at], justify=justify, overflow="fold", width=width)
    for row in body:
        grid.add_row(*(row[at] for at in kept))
    Console(highlight=False, markup=False, width=room).print(grid)


def _side_by_side(widths: Sequence[int], room: int) -> list[list[int]]:
    """Which columns stand in one block; each has the first and at least one other."""
    blocks: list[list[int]] = [[0]]
    used = widths[0]
    for at in range(1, len(widths)):
        if len(blocks[-1]) > 1 and used + 2 + widths[at] > room:
            blocks.append([0])
            used = widths[0]
        blocks[-1].append(at)
        used += 2 + widths[at]
    return blocks


def _least_width(name: str, cells: Sequence[str]) -> int:
    """Of a column whose words stay whole: numbers do not break, sentences do between words."""
    words = max(map(len, name.split()), default=0)
    if cells and all(map(_is_number, cells)):
        return max([words, *map(len, cells)])
    longest = max((len(word) for cell in cells for word in cell.split()), default=0)
    # A path or a digest may be longer than any screen; such a word folds.
    return max(words, min(longest, 40))


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
