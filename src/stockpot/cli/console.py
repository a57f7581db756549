"""What the command line prints: tables, and how far it is."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from stockpot.cli.progress import cell_row, progress_line, rate_text, subject
from stockpot.errors import printable
from stockpot.remote.address import shown

if TYPE_CHECKING:
    from stockpot.results.schema import CellResult
    from stockpot.types import PrecisionChoice


class _Plain(Console):
    """Shows texts and obeys none: names come from files, and may hold escape sequences."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)


# Text in brackets, such as stockpot[timm] or an interval, is text and not markup.
out = _Plain(soft_wrap=True, highlight=False, markup=False)
err = _Plain(stderr=True, soft_wrap=True, highlight=False, markup=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """A plain table; the first column is left-aligned, columns of numbers are right-aligned.

    Headings break between words alone. Where not all columns fit side by side, the rest follow
    below, each time with the first column again.
    """
    columns = [printable(name) for name in columns]
    body = [[printable(str(cell)) for cell in row] for row in rows]
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


def say_where(device: str, precision: str = "fp32", compiled: bool = False) -> None:
    """Name the device and the precision in which the work will be done."""
    from stockpot.engine import device_name, pick_device
    from stockpot.models.forward.options import chosen_forward

    place = pick_device(device)
    forward = chosen_forward(cast("PrecisionChoice", precision), compiled, place)
    err.print(f"on {device_name(place)}, {forward}")


EVERY_SECONDS = 10.0
"""Between plain lines: a log of an hour stays short."""
_ROWS = 12
"""Finished cells that stay in sight; the whole table comes at the end."""


class ImageProgress:
    """Told how far the work is; what it shows depends on who looks.

    Nobody sees a bar move in a log or in a file, so there a line comes every ten seconds.
    """

    def __init__(self, out: Path | None = None, *, shown: bool = True) -> None:
        """Nothing is shown before it is entered.

        Args:
            out: the run folder in which cells are saved, if they are.
            shown: whether this process is the one that shows it.
        """
        self._out = out
        self._is_shown = shown
        self._bar: Progress | None = None
        self._live: Live | None = None
        self._task: tuple[str, TaskID] | None = None
        self._begun: tuple[str, float, int] = ("", 0.0, 0)
        self._last = time.monotonic()
        self._rows: list[tuple[str, ...]] = []
        self._count = (0, 0)

    def __enter__(self) -> ImageProgress:
        if err.is_terminal and self._is_shown:
            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                _Rate(),
                TimeRemainingColumn(elapsed_when_finished=True),
                TextColumn("left"),
                console=err,
            )
            self._live = Live(
                console=err,
                transient=True,
                refresh_per_second=4,
                get_renderable=self._shown,
                vertical_overflow="crop",
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Say that `done` of `total` images (or steps) are behind us."""
        if self._bar is not None:
            self._move(self._bar, what, done, total)
            return
        now = time.monotonic()
        if self._begun[0] != subject(what) or done < self._begun[2]:
            self._begun = (subject(what), now, done)
        elif now - self._last > EVERY_SECONDS and done < total:
            self._last = now
            _, since, first = self._begun
            err.print(f"  {what}: {progress_line(done, total, done - first, now - since)}")

    def finished(self, result: CellResult, count: int, total: int) -> None:
        """A cell is done, the `count`th of `total`."""
        self._count = (count, total)
        row = cell_row(result)
        if self._live is None:
            err.print(f"[{count}/{total}] {' x '.join(row[:3])}: {row[3]}, {row[4]}")
            return
        self._rows.append(row)

    def saved(self) -> str:
        """What is saved if the command is interrupted now."""
        count, total = self._count
        if self._out is None:
            return "Nothing is saved, for want of -o FOLDER."
        if not total:
            return f"What was finished is saved in {shown(self._out)}."
        return f"{count} of {total} cells are saved in {shown(self._out)}."

    def _move(self, bar: Progress, what: str, done: int, total: int) -> None:
        if self._task is None or self._task[0] != subject(what):
            if self._task is not None:
                bar.remove_task(self._task[1])
            self._task = (subject(what), bar.add_task(what, total=total, completed=done))
        if done < bar.tasks[0].completed:
            bar.reset(self._task[1])
        bar.update(self._task[1], description=what, completed=done, total=total)

    def _shown(self) -> RenderableType:
        parts: list[RenderableType] = []
        if self._rows:
            count, total = self._count
            table = Table(box=None, pad_edge=False, title_justify="left")
            table.title = f"{count} of {total} cells"
            for name in ("model", "measure", "data", "score", "took"):
                table.add_column(name, no_wrap=True, overflow="ellipsis")
            for row in self._rows[-_ROWS:]:
                table.add_row(*(Text(text) for text in row))
            parts.append(table)
        if self._bar is not None and self._bar.tasks:
            parts.append(self._bar.get_renderable())
        return Group(*parts)


class _Rate(ProgressColumn):
    """How many a second, over the last moments."""

    def render(self, task: Task) -> Text:
        return Text(rate_text(task.speed) if task.speed else "")
