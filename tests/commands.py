"""Commands run in this process: what a user can fix comes out as an error, the rest is raised."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import typer.testing
from typer.testing import CliRunner

from stockpot.cli.main import app
from stockpot.errors import UserError

# The runner would build all commands anew, options and all, for every call.
typer.testing._get_command = cache(typer.testing._get_command)


class Done(NamedTuple):
    exit_code: int
    output: str


def invoke(*words: object) -> Done:
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, UserError | SystemExit):
        raise result.exception
    return Done(result.exit_code, f"{result.output}{result.exception or ''}")
