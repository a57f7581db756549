"""Trackers are told each result; read back by the packages themselves, with no network."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hand_made import clean_cell
from stockpot.errors import MissingDependencyError, UserError
from stockpot.results.schema import Score
from stockpot.results.sinks import sinks
from stockpot.results.sinks.feed import Feed, chosen_sinks
from stockpot.results.sinks.sink import Sink, numbers

RIGHT = {("a", "x"): 0.75, ("b", "x"): 0.5, ("a", "y"): 0.25, ("b", "y"): 1.0}
NAME = "{}/clean/accuracy"


def tell(given: object, folder: Path) -> None:
    """Results of two models by turns, as they come when they are measured together."""
    with Feed(given, folder) as feed:  # type: ignore[arg-type]
        for (model, data), share in RIGHT.items():
            feed.take(clean_cell(model, data, np.arange(4) < 4 * share))


def expected(model: str) -> dict[str, float]:
    return {NAME.format(data): share for (one, data), share in RIGHT.items() if one == model}


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    tell("tensorboard", tmp_path)
    for model in "ab":
        (file,) = (tmp_path / "tensorboard" / model).iterdir()
        loaded = EventFileLoader(str(file)).Load()
        events = [value for event in loaded for value in event.summary.value]
        found = {v.tag: v.tensor.float_val[0] for v in events if v.tensor.float_val}
        assert found == pytest.approx(expected(model))


def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (tmp_path / "mlruns").as_uri()
    tell({"mlflow": {"uri": uri, "experiment": "mine"}}, tmp_path)
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("mine")
    runs = client.search_runs([experiment.experiment_id])
    assert {run.info.run_name: run.data.metrics for run in runs} == {m: expected(m) for m in "ab"}
    assert {run.info.status for run in runs} == {"FINISHED"}


def wandb_records(file: Path) -> Iterator[bytes]:
    """A `.wandb` file: seven bytes, then records as LevelDB logs them, in blocks of 32 KiB."""
    data, at, whole = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield whole
            whole = b""


def test_wandb(tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    tell({"wandb": {"mode": "offline"}}, tmp_path)
    wandb.teardown()  # its own process writes the last of it, as at the end of a program
    found = {}
    for file in (tmp_path / "wandb").glob("offline-run-*/*.wandb"):
        model, told = "", {}
        for data in wandb_records(file):
            record = Record()
            record.ParseFromString(data)
            model = record.run.display_name or model
            for item in record.summary.update:
                told[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
        found[model] = {key: value for key, value in told.items() if not key.startswith("_")}
    assert found == {m: expected(m) for m in "ab"}


def test_trackio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    pytest.importorskip("trackio")
    import trackio.utils

    monkeypatch.setattr(trackio.utils, "TRACKIO_DIR", tmp_path)
    monkeypatch.setattr("trackio.sqlite_storage.TRACKIO_DIR", tmp_path)
    tell("trackio", tmp_path)
    found: dict[str, dict[str, float]] = {}
    with sqlite3.connect(tmp_path / "stockpot.db") as database:
        for run, values in database.execute("select run_name, metrics from metrics"):
            found.setdefault(run, {}).update(json.loads(values))
    assert found == {m: expected(m) for m in "ab"}
    assert capsys.readouterr().out == ""  # what we print may be read by a program


def test_intervals_go_with_numbers_of_the_whole() -> None:
    cell = clean_cell("a", "x", np.ones(4, bool))
    score = cell.scores[0].model_copy(update={"ci_low": 0.5, "ci_high": 1.0})
    single = score.model_copy(update={"condition": {"class": "cat"}})
    part = Score(metric="error", value=1.0, n=4, condition={"severity": 3, "eps": "8/255"})
    told = numbers(cell.model_copy(update={"scores": [score, single, part]}))
    assert told == {
        "x/clean/accuracy": 1.0,
        "x/clean/accuracy/low": 0.5,
        "x/clean/accuracy/high": 1.0,
        "x/clean/error/eps-8_255/severity-3": 1.0,
    }


def test_a_tracker_that_fails_costs_no_result(tmp_path: Path, monkeypatch) -> None:
    told: list[str] = []

    def broken(*_: object) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(sinks, "_entries", {})  # what is registered here is forgotten afterwards

    @sinks.register("broken")
    def _broken(folder: Path | None) -> Sink:
        """Fails."""
        return Sink(lambda model, facts: model, broken, told.append)

    with pytest.warns(UserWarning, match="broken failed.*no route.*saved as before") as seen:
        tell("broken", tmp_path)
    assert len(seen) == 1  # and not for every result
    assert told == []


def test_what_is_wrong_is_said_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="Did you mean wandb"):
        chosen_sinks("wandbb")
    with pytest.raises(UserError, match="unknown parameter 'projet'"):
        chosen_sinks({"wandb": {"projet": "x"}})
    with pytest.raises(UserError, match="twice"):
        chosen_sinks("wandb,wandb")
    monkeypatch.setitem(__import__("sys").modules, "trackio", None)
    with pytest.raises(MissingDependencyError, match="pip install trackio"):
        Feed("trackio")
