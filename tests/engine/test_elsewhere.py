"""The same results on a Ray cluster of two nodes, with losses, and as jobs of SLURM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from engine.crowd import Measuring, come_through, die_once, job
from pico import ReadsLabel, make_classifier, make_dataset
from stockpot.engine.choice import chosen_engine
from stockpot.engine.interrupt import Interrupted
from stockpot.engine.placing import LARGE, Packer, unpack
from stockpot.engine.ray import RayWorkers
from stockpot.errors import UserError
from stockpot.files import is_abandoned
from stockpot.measure.run import measure
from stockpot.models.classifier import Origin
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
    # Each of these is a Python of its own, and none is asked for anything.
    small |= {"include_log_monitor": False, "no_monitor": True}
    monkeypatch.setattr("ray._private.node.Node.start_api_server", lambda *_, **__: None)
    try:
        cluster = Cluster(
            initialize_head=True,
            head_node_args={**small, "include_dashboard": False, "_system_config": soon},
        )
        second = cluster.add_node(**small)
    except Exception as problem:  # ports, shared memory, or half a minute that was not enough
        pytest.skip(f"Ray starts no cluster here: {problem}")
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    yield cluster, second
    ray.shutdown()
    cluster.shutdown()


def asked(models: int, **measures: Any) -> dict[str, Any]:
    """Networks of a line, so that a worker need not import what it takes to read a real one."""
    data = make_dataset(16)
    named = {name: make_classifier(ReadsLabel(len(data.classes))) for name in "ab"[:models]}
    for number, model in enumerate(named.values()):
        with torch.no_grad():  # one is always right, another is not
            model.network.levels += 0.05 * number
        model.origin = Origin(f"toy-{number}", "Toy", f"{number}" * 64)
    return {"models": named, "measures": measures, "data": data, "device": "cpu", "batch_size": 4}


def told(results: list[CellResult]) -> list[dict[str, Any]]:
    return [one.model_dump(exclude={"cost", "provenance"}) for one in results]


def wait_until(found: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end
        time.sleep(0.02)


def wait_for(gate: Path, count: int) -> list[int]:
    """The processes that have come to the gate."""
    wait_until(lambda: len(list(gate.iterdir())) >= count, 60)
    return [int(path.name) for path in gate.iterdir()]


def test_a_lost_worker_and_a_lost_node_cost_time_alone(
    two_nodes: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, second = two_nodes
    question = asked(2, clean={}, adversarial={"steps": 2, "norms": "linf"})
    plain = told(measure(**question, out=tmp_path / "serial"))
    gate = tmp_path / "gate"
    gate.mkdir()
    monkeypatch.setattr("stockpot.measure.run.carry_out", Measuring(come_through, gate))

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


def test_a_cluster_that_does_not_start_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)

    prestarted = []

    def slow(**_: Any) -> None:
        prestarted.append(os.environ["RAY_prestart_worker_first_driver"])  # noqa: SIM112
        raise Exception("The current node timed out during startup. This could happen because ...")

    monkeypatch.setattr(ray, "init", slow)
    with pytest.raises(UserError, match="a local cluster cannot be used"):
        chosen_engine("ray")
    # A worker that is lost while a cluster starts would be waited for without end.
    assert prestarted == ["0"]


def test_signals_are_answered_as_before_ray_came(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)

    def stop(number: int, _: object) -> None:
        raise Interrupted(number)

    def start(**_: object) -> None:  # as Ray does
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(number))
        os.kill(os.getpid(), signal.SIGTERM)

    def broken(*_: object, **__: object) -> None:  # as its compiled code passes an exception on
        raise SystemError("returned a result with an exception set") from Interrupted(2)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        monkeypatch.setattr(ray, "init", start)
        with pytest.raises(Interrupted) as stopped:
            chosen_engine("ray")
        assert stopped.value.number == signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) is stop
    finally:
        signal.signal(signal.SIGTERM, before)
    fake = SimpleNamespace(put=lambda value: value, wait=broken)
    workers = RayWorkers(fake, SimpleNamespace(size=1), job, None, 1, 0)  # type: ignore[arg-type]
    with pytest.raises(Interrupted):
        workers.next()


def local(folder: Path) -> dict[str, Any]:
    return {"name": "slurm", "cluster": "local", "poll": 0.1, "folder": str(folder / "jobs")}


def test_jobs_of_submitit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit")
    question = asked(1, clean={})
    plain = told(measure(**question, out=tmp_path / "serial"))
    # A job that is lost is sent again.
    monkeypatch.setattr("stockpot.measure.run.carry_out", Measuring(die_once, tmp_path / "died"))
    assert told(measure(**question, out=tmp_path / "slurm", engine=local(tmp_path))) == plain
    assert (tmp_path / "died").exists()


def test_local_jobs_end_with_who_asked(tmp_path: Path) -> None:
    """submitit's processes are made to outlive the one that started them."""
    pytest.importorskip("submitit")
    words = (
        f"from engine.crowd import ask_for_ever; ask_for_ever({local(tmp_path)}, {str(tmp_path)!r})"
    )
    with subprocess.Popen([sys.executable, "-c", words]) as parent:
        wait_until(lambda: any(tmp_path.glob("*.mark")), 60)
        parent.kill()
        (mark,) = tmp_path.glob("*.mark")
        # Nobody has asked yet how the parent ended: the system still keeps its number.
        wait_until(lambda: is_abandoned(mark.stem), 20)


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
