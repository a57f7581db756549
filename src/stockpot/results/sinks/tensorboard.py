"""TensorBoard: a folder of events for each model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stockpot.results.exports.names import file_name
from stockpot.results.schema import Scalar
from stockpot.results.sinks import sinks
from stockpot.results.sinks.sink import Numbers, Sink, library


@sinks.register("tensorboard")
def tensorboard(folder: Path | None, *, logs: str = "") -> Sink:
    """Scalars for TensorBoard: `tensorboard --logdir FOLDER/tensorboard`.

    Args:
        folder: of the run; `runs` where results are not saved.
        logs: where the events go, if not to `tensorboard` in it.
    """
    library("tensorboard")
    writers = library("torch.utils.tensorboard", "tensorboard")
    place = Path(logs) if logs else (folder or Path("runs")) / "tensorboard"

    def opened(model: str, facts: dict[str, Scalar]) -> Any:
        writer = writers.SummaryWriter(str(place / file_name(model)))
        lines = (f"{key}: {value}" for key, value in facts.items() if value not in (None, ""))
        writer.add_text("model", "  \n".join(lines))
        return writer

    def told(run: Any, values: Numbers) -> None:
        for name, value in values.items():
            run.add_scalar(name, value)
        run.flush()

    def closed(run: Any) -> None:
        run.close()

    return Sink(opened, told, closed)
