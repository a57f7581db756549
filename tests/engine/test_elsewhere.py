"""The same results on a Ray cluster of two nodes, with losses, and as jobs of SLURM."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.crowd import GATE, die_once, job, through_the_gate
from pico import make_dataset
from run_recipes import pico_model
from stockpot.engine.choice import chosen_engine
from stockpot.engine.placing import LARGE, Packer, unpack
from stockpot.errors import UserError
from stockpot.measure.run import measure
from stockpot.results.schema import CellResult

TESTS = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _tests_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))


@pytest.fixture
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Any]]:
    """A cluster of two nodes with a core each, and the node that can be lost."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    soon = {"health_check_period_ms": 300, "health_check_failure_threshold": 3}
    small: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 << 20}
    cluster = Cluster(
        initialize_head=True,
        head_node_args={**small, "include_dashboard": False, "_system_config": soon},
    )
    second = cluster.add_node(**small)
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    yield cluster, second
    ray.shutdown()
    cluster.shutdown()


def asked(folder: Path, models: int) -> dict[str, Any]:
    data = make_dataset(16)
    names = [str(pico_model(folder / name, seed)) for seed, name in enumerate("ab"[:models])]
    quick = {"steps": 2, "norms": "linf"}
    return {"models": names, "measures": {"clean": {}, "adversarial": quick}, "data": data} | {
        "device": "cpu", "batch_size": 4,
    }  # fmt: skip


def told(results: list[CellResult]) -> list[dict[str, Any]]:
    return [one.model_dump(exclude={"cost", "provenance"}) for one in results]


def wait_for(gate: Path, count: int) -> list[int]:
    """The processes that have come to the gate."""
    end = time.monotonic() + 60
    while len(found := [int(p.name) for p in gate.iterdir() if p.name != "go"]) < count:
        assert time.monotonic() < end, "no worker came"
        time.sleep(0.02)
    return found


def test_a_lost_worker_and_a_lost_node_cost_time_alone(
    two_nodes: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, second = two_nodes
    question = asked(tmp_path / "models", 2)
    plain = told(measure(**question, out=tmp_path / "serial"))
    gate = tmp_path / "gate"
    gate.mkdir()
    monkeypatch.setenv(GATE, str(gate))
    monkeypatch.setattr("stockpot.measure.run.carry_out", through_the_gate)

    def spoil() -> None:
        first, *_ = wait_for(gate, 2)
        os.kill(first, signal.SIGKILL)
        wait_for(gate, 3)
        cluster.remove_node(second, allow_graceful=False)
        (gate / "go").touch()

    spoiler = threading.Thread(target=spoil)
    spoiler.start()
    found = measure(**question, out=tmp_path / "ray", shards=2, engine={"name": "ray", "cpus": 1})
    spoiler.join()
    assert told(found) == plain
    names = [sorted(path.name for path in (tmp_path / run / "results").iterdir())
             for run in ("serial", "ray")]  # fmt: skip
    assert names[0] == names[1]
    # On the node that is left there is room for one; errors come back as values.
    engine = chosen_engine("ray")
    outcomes = sorted(engine.run(job, [1, 2, 3, 4]), key=lambda outcome: outcome.job)
    assert [outcome.value for outcome in outcomes] == [1, 4, None, 16]
    assert "three" in str(outcomes[2].error)


def test_jobs_of_submitit(tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    question = asked(tmp_path / "models", 1)
    plain = told(measure(**question, out=tmp_path / "serial"))
    local = {"name": "slurm", "cluster": "local", "poll": 0.1, "folder": str(tmp_path / "jobs")}
    assert told(measure(**question, out=tmp_path / "slurm", engine=local | {"workers": 1})) == plain
    # A job that is lost is sent again.
    (outcome,) = chosen_engine(local).run(die_once, [str(tmp_path / "died")])
    assert outcome.value == "alive"


def test_without_sbatch_slurm_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="cluster=local"):
        chosen_engine({"name": "slurm", "folder": str(tmp_path / "jobs")})


def test_a_tensor_is_placed_once() -> None:
    pictures = torch.zeros(LARGE, dtype=torch.uint8)
    weights = torch.ones(LARGE // 4)
    placed: list[np.ndarray] = []

    def put(array: np.ndarray) -> int:
        placed.append(array)
        return len(placed) - 1

    packer = Packer(put)
    values = {"pictures": pictures, "weights": weights, "small": torch.ones(3)}
    bodies = [packer.pack({**values, "n": number}) for number in range(3)]
    assert len(placed) == 2
    assert all(len(body) < 2000 for body, _ in bodies)
    body, places = bodies[2]
    back = unpack(body, [placed[place] for place in places])
    assert back["n"] == 2
    assert torch.equal(back["weights"], weights)
    back["weights"] += 1  # a copy of its own
    assert weights[0] == 1
    assert back["pictures"].data_ptr() == pictures.data_ptr()
