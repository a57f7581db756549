"""Trackio: a run of a project for each model."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from contextvars import Context
from functools import partial
from pathlib import Path

from stockpot.results.schema import Scalar
from stockpot.results.sinks import sinks
from stockpot.results.sinks.sink import Numbers, Sink, library


@sinks.register("trackio")
def trackio(folder: Path | None, *, project: str = "stockpot", space: str = "") -> Sink:
    """Metrics in trackio: on this machine (TRACKIO_DIR), or in a Space of the hub.

    Args:
        folder: of the run.
        project: its name.
        space: `owner/name` of a Space to send them to.
    """
    package = library("trackio")

    # It has one run at a time for each context, and results of several models come by turns.
    def opened(model: str, facts: dict[str, Scalar]) -> Context:
        own = Context()
        begin = partial(package.init, project, model, config=facts, space_id=space or None)
        with redirect_stdout(sys.stderr):  # our own output may be read by a program
            own.run(begin, embed=False, auto_log_gpu=False, auto_log_cpu=False)
        return own

    def told(run: Context, values: Numbers) -> None:
        with redirect_stdout(sys.stderr):
            run.run(package.log, values)

    def closed(run: Context) -> None:
        with redirect_stdout(sys.stderr):
            run.run(package.finish)

    return Sink(opened, told, closed)
