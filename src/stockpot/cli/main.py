"""The `stockpot` command. Commands import what they need when they run, so `--help` is quick."""

# What is imported below takes as long as what begins here.
# ruff: noqa: E402
from __future__ import annotations

import sys

from stockpot.cli.beginning import begin, leave

begin(sys.argv[1:])

import errno
import os
import shlex
import traceback
import warnings
from typing import Annotated, TextIO

import typer

from stockpot.cli.commands import Root
from stockpot.cli.options import examples
from stockpot.engine import keep_freed_memory
from stockpot.engine.interrupt import Interrupted, listen
from stockpot.errors import LONGEST, PartialResultsError, UserError, printable, shortened
from stockpot.files import tells_full_disk
from stockpot.stages import process_age, timed

app = typer.Typer(
    cls=Root, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False
)


@app.callback(
    invoke_without_command=True,
    epilog=examples(
        "stockpot run recipes/demo.yaml",
        "stockpot measure icons-resnet --data icons --with clean",
    ),
)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Many checkpoints in, one robust image classifier out, with the evidence."""
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"stockpot {installed('stockpot')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """The entry point: turns errors into one line and an exit code.

    0 done, 1 the user can fix it, 2 usage, 3 some cells failed and the rest is saved, 4 a check
    found the model worse than required; 130 stopped by Ctrl-C and 143 by SIGTERM (128 and the
    signal's number, as shells have it).
    """
    listen(_say_that_it_waits)
    keep_freed_memory()
    warnings.showwarning = _warn
    try:
        with timed(age=process_age()):
            app()
    except SystemExit as end:
        leave(end.code)
        raise
    except PartialResultsError as problem:
        _fail(problem, str(problem), 3)
    except UserError as problem:
        _fail(problem, str(problem), 1)
    except Interrupted as stop:
        saved = stop.saved or "Nothing was left half-written."
        again = shlex.join(["stockpot", *sys.argv[1:]])
        _fail(stop, f"interrupted. {saved} To go on: {again}", 128 + stop.number)
    except Exception as problem:
        if tells_full_disk(problem):
            _fail(problem, "No space left on device. Nothing was left half-written.", 1)
        if isinstance(problem, MemoryError) or type(problem).__name__ == "OutOfMemoryError":
            # The name is torch's, which need not be imported for it.
            reason = str(problem).split(". ")[0] or "no more can be had"
            _fail(
                problem, f"out of memory: {reason}. Try a smaller batch_size, or fewer workers.", 1
            )
        if not isinstance(problem, OSError) or problem.errno not in OF_THE_DISK:
            raise
        where = f" ({problem.filename})" if problem.filename else ""
        _fail(problem, f"{problem.strerror}{where}. Nothing was left half-written.", 1)


OF_THE_DISK = {
    errno.EACCES, errno.EPERM, errno.EROFS,
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG,
}  # fmt: skip
"""A path that cannot be written or read: for the user to mend."""


def _say_that_it_waits() -> None:
    sys.stderr.write("\nstopping when the step under way is saved; once more stops at once\n")


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    # Where in our code it arose says nothing to a user.
    sys.stderr.write(f"warning: {printable(' '.join(str(message).split()))}\n")


def _fail(problem: BaseException, message: str, code: int) -> None:
    if os.environ.get("STOCKPOT_TRACEBACK"):
        traceback.print_exception(problem)
    sys.stderr.write(f"error: {shortened(printable(' '.join(message.split())), LONGEST)}\n")
    sys.stderr.flush()
    leave(code)
    sys.exit(code)
