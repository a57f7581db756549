"""`--profile FILE`, which every command takes that works for a while: where its time went."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from stockpot.stages import timed

Profile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write where the time went as a trace for ui.perfetto.dev or chrome://tracing.",
    ),
]


def with_profile(command: Callable[..., None]) -> Callable[..., None]:
    """The command with that option; the trace is written also where it fails."""

    @functools.wraps(command)
    def run(*, profile: Path | None = None, **given: Any) -> None:
        with timed(keep=profile is not None) as clock:
            try:
                command(**given)
            finally:
                if profile is not None:
                    from stockpot.trace import write_trace

                    typer.echo(f"trace: {write_trace(clock.trace(), profile)}", err=True)

    asked = inspect.signature(command, eval_str=True)
    option = inspect.Parameter(
        "profile", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Profile
    )
    run.__signature__ = asked.replace(  # type: ignore[attr-defined]
        parameters=[*asked.parameters.values(), option]
    )
    return run
