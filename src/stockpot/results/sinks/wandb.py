"""Weights & Biases: a run of a project for each model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from stockpot.results.schema import Scalar
from stockpot.results.sinks import sinks
from stockpot.results.sinks.sink import Numbers, Sink, library


@sinks.register("wandb")
def wandb(
    folder: Path | None,
    *,
    project: str = "stockpot",
    mode: Literal["online", "offline", "disabled"] | None = None,
) -> Sink:
    """Summaries in Weights & Biases, by the key and settings of the environment (WANDB_...).

    Args:
        folder: of the run; what is logged offline lies there.
        project: its name.
        mode: `offline` keeps runs here until `wandb sync`; else as WANDB_MODE says.
    """
    package = library("wandb")

    def opened(model: str, facts: dict[str, Scalar]) -> Any:
        where = str(folder) if folder else None
        # Results of several models come by turns, so their runs are open side by side.
        return package.init(
            project=project,
            name=model,
            config=facts,
            dir=where,
            mode=mode,
            reinit="create_new",
            settings=package.Settings(silent=True, console="off"),
        )

    def told(run: Any, values: Numbers) -> None:
        run.summary.update(values)

    def closed(run: Any) -> None:
        run.finish()

    return Sink(opened, told, closed)
