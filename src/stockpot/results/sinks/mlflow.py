"""MLflow: a run of an experiment for each model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stockpot.results.schema import Scalar
from stockpot.results.sinks import sinks
from stockpot.results.sinks.sink import Numbers, Sink, library


@sinks.register("mlflow")
def mlflow(folder: Path | None, *, experiment: str = "stockpot", uri: str = "") -> Sink:
    """Metrics and tags in MLflow, on the server that MLFLOW_TRACKING_URI names.

    Args:
        folder: of the run.
        experiment: its name; made where there is none.
        uri: of the tracking server, if not that of the environment.
    """
    client = library("mlflow", "mlflow-skinny").MlflowClient(tracking_uri=uri or None)
    known = client.get_experiment_by_name(experiment)
    number = known.experiment_id if known else client.create_experiment(experiment)

    def opened(model: str, facts: dict[str, Scalar]) -> str:
        run = client.create_run(number, run_name=model)
        identity: str = run.info.run_id
        for key, value in facts.items():
            if value not in (None, ""):
                client.log_param(identity, key, value)
        return identity

    def told(run: str, values: Numbers) -> None:
        for name, value in values.items():
            client.log_metric(run, name, value)

    def closed(run: Any) -> None:
        client.set_terminated(run)

    return Sink(opened, told, closed)
