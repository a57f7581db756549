"""The `stockpot` command. Commands import what they need when they run, so `--help` is quick."""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
import warnings
from types import FrameType
from typing import Annotated, TextIO

import typer

from stockpot.cli import (
    attack,
    audit,
    choose,
    compare,
    convert,
    corrupt,
    data,
    doctor,
    explain,
    export,
    fuse,
    harden,
    listing,
    measure,
    report,
    rescore,
    run,
    runs,
    season,
    show,
    sign,
    similarity,
    transfer,
    tune,
    validate,
    verify,
)
from stockpot.cli.options import examples
from stockpot.engine import keep_freed_memory
from stockpot.engine.stages import process_age, timed
from stockpot.errors import PartialResultsError, UserError

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)
_MAKING = (
    run,
    fuse,
    similarity,
    harden,
    season,
    tune,
    measure,
    attack,
    audit,
    explain,
    corrupt,
    report,
    rescore,
    export,
    convert,
)
_JUDGING = (compare, choose, transfer, sign, verify)
_ASKING = (listing, show, validate, doctor)
for module in (*_MAKING, *_JUDGING, *_ASKING):
    app.command(module.NAME, epilog=module.EXAMPLES)(module.command)
app.add_typer(data.app, name="data")
app.add_typer(runs.app, name="runs")


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

    0 done, 1 the user can fix it, 2 usage, 3 some cells failed and the rest is saved.
    """
    signal.signal(signal.SIGINT, _interrupt)
    keep_freed_memory()
    warnings.showwarning = _warn
    try:
        with timed(age=process_age()):
            app()
    except PartialResultsError as problem:
        _fail(problem, str(problem), 3)
    except UserError as problem:
        _fail(problem, str(problem), 1)
    except Interrupted as problem:
        _fail(problem, "interrupted. What was finished is saved; the same command goes on.", 1)
    except OSError as problem:
        if problem.errno not in OF_THE_DISK:
            raise
        where = f" ({problem.filename})" if problem.filename else ""
        _fail(problem, f"{problem.strerror}{where}. Nothing was left half-written.", 1)


OF_THE_DISK = {
    errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS,
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG,
}  # fmt: skip
"""A full disk, or a path that cannot be written or read: for the user to mend."""


class Interrupted(BaseException):
    """Ctrl-C. Not a KeyboardInterrupt, which typer would answer with its own exit code."""


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    # Where in our code it arose says nothing to a user.
    sys.stderr.write(f"warning: {' '.join(str(message).split())}\n")


def _fail(problem: BaseException, message: str, code: int) -> None:
    if os.environ.get("STOCKPOT_TRACEBACK"):
        traceback.print_exception(problem)
    sys.stderr.write(f"error: {' '.join(message.split())}\n")
    sys.stderr.flush()
    sys.exit(code)
