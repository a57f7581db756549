"""Options of commands that take long: where their time went, and whether files are read again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

Profile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write where the time went as a trace for ui.perfetto.dev or chrome://tracing.",
    ),
]
CheckFiles = Annotated[
    bool,
    typer.Option(
        "--check-files",
        help="Read every picture again instead of knowing it by inode, size and time.",
    ),
]


@contextmanager
def profiled(path: Path | None, *, check_files: bool) -> Iterator[None]:
    """Run a command under a clock; the trace is written also where it fails."""
    from stockpot.datasets.stream.file_check import reading_again
    from stockpot.engine.stages import timed, write_trace

    with timed(keep=path is not None) as clock, reading_again(check_files):
        try:
            yield
        finally:
            if path is not None:
                typer.echo(f"trace: {write_trace(clock, path)}", err=True)
