"""Commands run in this process: what a user can fix comes out as an error, the rest is raised."""

from __future__ import annotations

from typing import NamedTuple

from typer.testing import CliRunner

from stockpot.cli.main import app
from stockpot.errors import UserError


class Done(NamedTuple):
    exit_code: int
    output: str


def invoke(*words: object) -> Done:
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, UserError | SystemExit):
        raise result.exception
    return Done(result.exit_code, f"{result.output}{result.exception or ''}")
