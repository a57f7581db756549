"""Two processes train to the weights of one."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pico import make_dataset
from processes import Running
from stockpot.errors import UserError
from stockpot.harden.distributed import is_first, own_share, workers
from stockpot.harden.run import harden

SETTINGS = {"eps": "4/255", "steps": 1, "epochs": 1, "batch_size": 8, "lr": 0.01}
SETTINGS |= {"optimizer": "sgd", "clip": 0.0}


def train_adversarially(model: Path, out: Path) -> None:
    harden("adversarial", model, make_dataset(), out=out, **SETTINGS)


def test_one_process_alone_is_left_alone() -> None:
    rows = torch.arange(6)
    assert workers() == 1
    assert is_first()
    assert own_share(rows)[0] is rows


def test_two_processes_make_the_weights_of_one(pico_vit: Path, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    running = [
        Running(
            train_adversarially,
            pico_vit,
            tmp_path / "two",
            env=shared | {"RANK": rank, "LOCAL_RANK": rank},
        )
        for rank in ("0", "1")
    ]
    ended = [process.wait() for process in running]
    assert [process.returncode for process in ended] == [0, 0], ended
    harden("adversarial", pico_vit, make_dataset(), out=tmp_path / "one", **SETTINGS)
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    start = load_file(pico_vit / "model.safetensors")
    for name, tensor in one.items():
        assert torch.allclose(tensor, two[name], atol=1e-6), name
    assert any(not torch.equal(one[name], start[name]) for name in one)


def test_a_batch_that_cannot_be_shared_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stockpot.harden.distributed._joined", lambda: True)
    monkeypatch.setattr("stockpot.harden.distributed.workers", lambda: 4)
    with pytest.raises(UserError, match="multiple of the 4"):
        own_share(torch.arange(6))
