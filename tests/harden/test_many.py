"""Two processes train to the weights of one: whole, in shards, stopped, and through a lost one."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import Tensor

from commands import invoke
from pico import make_dataset
from processes import Running, free_port, in_two
from stockpot.engine.interrupt import Interrupted, ask_to_stop
from stockpot.errors import UserError
from stockpot.harden import hardeners, loop, run
from stockpot.harden.augment import augment
from stockpot.harden.many.processes import rank, together
from stockpot.harden.many.sharded import check_for_shards
from stockpot.harden.many.shares import own_rows, weight_of
from stockpot.harden.run import harden
from stockpot.harden.state import Resume
from stockpot.models.load import load_model

SETTINGS: dict[str, Any] = {"eps": "4/255", "steps": 1, "epochs": 2, "batch_size": 8, "lr": 0.01}
SETTINGS |= {"optimizer": "sgd"}
STEPS = 10
ROUNDING = 1e-6


def adversarially(model: Path, out: Path, **more: Any) -> None:
    harden("adversarial", model, make_dataset(), out=out, **SETTINGS, **more)


@pytest.fixture(scope="module")
def one(pico_vit: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process makes."""
    out = tmp_path_factory.mktemp("one") / "model"
    adversarially(pico_vit, out)
    return out


def weights(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


def apart(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> float:
    assert a.keys() == b.keys()
    return max(float((a[name] - b[name]).abs().max()) for name in a)


def test_one_process_alone_has_all_rows() -> None:
    assert own_rows(6) == slice(0, 6)
    assert weight_of(6) == 1


def test_every_row_is_dealt_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stockpot.harden.many.shares.joined", lambda: True)
    monkeypatch.setattr("stockpot.harden.many.shares.workers", lambda: 4)
    rows, counts = [], []
    for number in range(4):
        monkeypatch.setattr("stockpot.harden.many.shares.rank", lambda number=number: number)
        rows += list(range(10))[own_rows(10)]
        counts.append(weight_of(10))
    assert rows == list(range(10))
    assert sum(counts) == pytest.approx(4)  # so that the mean over processes is that over images
    assert counts[0] == pytest.approx(2 / (10 / 4))
    with pytest.raises(UserError, match="one image for each of the 4 processes, got 3"):
        own_rows(3)


def by_command_and_in_shards(model: Path, data: Path, folder: Path) -> None:
    with together(torch.device("cpu")):
        options = [f"-p{key}={value}" for key, value in SETTINGS.items()]
        words = ["harden", "adversarial", model, "--data", data, "--device", "cpu"]
        done = invoke(*words, *options, "-dsplit=all", "-o", folder / "two")
        (folder / f"said-{rank()}").write_text(f"{done.exit_code}\n{done.output}")
        run.Resume = lambda path: Resume(path, every=3)
        calls = 0

        def stopping(*given: Any) -> Tensor:
            nonlocal calls
            calls += 1
            if rank() == 1 and calls == 5:
                ask_to_stop(signal.SIGTERM)  # one of them is told, and all stop after this step
            return augment(*given)

        loop.augment = stopping
        with pytest.raises(Interrupted):
            adversarially(model, folder / "shards", shard=True)
        loop.augment = augment
        (folder / f"stopped-{rank()}").write_text(str(calls))
        adversarially(model, folder / "shards", shard=True)
        with pytest.raises(UserError, match="carot: cannot train a model in shards: it keeps"):
            harden("carot", model, make_dataset(), out=folder / "no", shard=True)


def test_two_processes_make_the_weights_of_one(
    pico_vit: Path, one: Path, toy_file: Path, tmp_path: Path
) -> None:
    in_two(by_command_and_in_shards, pico_vit, toy_file, tmp_path)
    start = weights(pico_vit)
    assert apart(start, weights(one)) > 1e-3
    assert apart(weights(one), weights(tmp_path / "two")) < ROUNDING
    assert apart(weights(one), weights(tmp_path / "shards")) < ROUNDING
    assert load_model(tmp_path / "shards").classes == load_model(one).classes
    # The first process tells, the second is silent.
    told, silent = ((tmp_path / f"said-{number}").read_text() for number in (0, 1))
    assert told.startswith("0\n")
    assert f"model: {tmp_path / 'two'}" in told
    assert silent == "0\n"
    assert [(tmp_path / f"stopped-{number}").read_text() for number in (0, 1)] == ["5", "5"]
    names = {"one", "two", "shards", "said-0", "said-1", "stopped-0", "stopped-1"}
    assert {path.name for path in tmp_path.iterdir()} <= names | {"toy.npz"}


def test_a_restart_reads_no_address_of_the_try_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun's own store outlives its processes; whom one finds there must be of the same try."""
    agent = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    surroundings = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(agent.port), "WORLD_SIZE": "2"}
    for name, value in {**surroundings, "TORCHELASTIC_USE_AGENT_STORE": "True"}.items():
        monkeypatch.setenv(name, value)
    stores: list[Any] = []
    monkeypatch.setattr(
        dist, "init_process_group", lambda backend, store, **_: stores.append(store)
    )
    monkeypatch.setattr(dist, "destroy_process_group", lambda: None)
    for attempt, number in (("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", attempt)
        monkeypatch.setenv("RANK", number)
        with together(torch.device("cpu")):
            pass
    first, beside_it, *again = stores
    first.set("where I am", "a port that is closed when this process is lost")
    assert beside_it.check(["where I am"])
    assert not any(store.check(["where I am"]) for store in again)
    again[0].set("where I am", "here")
    assert again[1].get("where I am") == b"here"


def elastic(model: Path, out: Path) -> None:
    """What torchrun --nproc-per-node 2 --max-restarts 1 does, with its usual rendezvous."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    address = f"127.0.0.1:{free_port()}"
    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=2, max_restarts=1, monitor_interval=0.05,
        rdzv_backend="static", rdzv_endpoint=address, rdzv_configs={"rank": 0}, run_id="elastic",
        start_method="fork",
    )  # fmt: skip
    elastic_launch(config, killed_once)(model, out)


def killed_once(model: Path, out: Path) -> None:
    run.Resume = lambda path: Resume(path, every=3)
    is_first_try = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    calls = 0

    def counted(*given: Any) -> Tensor:
        nonlocal calls
        calls += 1
        if is_first_try and os.environ["RANK"] == "1" and calls == 8:
            os.kill(os.getpid(), signal.SIGKILL)
        return augment(*given)

    loop.augment = counted
    adversarially(model, out)
    (out.parent / f"steps-{os.environ['RANK']}").write_text(str(calls))


def test_a_lost_process_leads_to_a_restart_that_ends_in_the_same_weights(
    pico_vit: Path, one: Path, tmp_path: Path
) -> None:
    ended = Running(elastic, pico_vit, tmp_path / "elastic").wait()
    assert ended.returncode == 0, ended
    assert apart(weights(one), weights(tmp_path / "elastic")) < ROUNDING
    # It went on from the last state that was saved, after six of ten steps.
    assert [(tmp_path / f"steps-{number}").read_text() for number in (0, 1)] == ["4", "4"]


def test_shards_need_several_processes(pico_vit: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="several processes to share the model, got one"):
        adversarially(pico_vit, tmp_path / "no", shard=True)
    assert not list(tmp_path.iterdir())


def test_settings_that_shards_cannot_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stockpot.harden.many.sharded.workers", lambda: 2)
    check_for_shards(8, 0.0)
    with pytest.raises(UserError, match="batch_size: expected a multiple of the 2 processes"):
        check_for_shards(9, 0.0)
    with pytest.raises(UserError, match="ema: expected 0"):
        check_for_shards(8, 0.9)


def test_the_docs_name_the_methods_that_need_the_whole_model() -> None:
    text = (Path(__file__).parents[2] / "docs" / "scale.md").read_text()
    told = text.split("which they say in one line: ")[1].split("\n\n")[0]
    named = [name.strip(" `.\n") for name in told.split(",")]
    assert named == [name for name in hardeners.names() if hardeners.get(name).tags.whole]
