"""A run that is killed, by the signal that nothing can catch, resumes to the same weights."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

from pico import make_dataset
from processes import Running
from stockpot.datasets.dataset import Dataset
from stockpot.harden import loop, run
from stockpot.harden.augment import augment
from stockpot.harden.loop import train
from stockpot.harden.nominal import nominal
from stockpot.harden.run import harden
from stockpot.harden.state import Resume
from stockpot.models.load import load_model

SETTINGS = {"norm": "linf", "eps": "8/255", "steps": 1, "epochs": 8, "batch_size": 8, "lr": 0.001}


def train_adversarially(model: Path, out: Path) -> None:
    run.Resume = lambda path: Resume(path, every=10)

    def slow(*given):  # type: ignore[no-untyped-def]
        if list(out.parent.glob(".killed.partial/*.pt")):
            time.sleep(0.5)  # so that a short run can be caught midway
        return augment(*given)

    loop.augment = slow
    harden("adversarial", model, make_dataset(), out=out, **SETTINGS)


def test_killed_and_resumed_gives_the_same_weights(pico_vit: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    process = Running(train_adversarially, pico_vit, out)
    limit = time.monotonic() + 300  # importing takes long on a busy machine
    while not (states := list(tmp_path.glob(".killed.partial/*.pt"))):
        assert process.poll() is None
        assert time.monotonic() < limit
        time.sleep(0.01)
    (state,) = states
    process.send(signal.SIGKILL)
    assert process.wait().returncode == -signal.SIGKILL
    assert state.exists()
    assert not out.exists()
    step = torch.load(state, weights_only=True)["step"]
    assert 0 < step < 40
    harden("adversarial", pico_vit, make_dataset(), out=out, **SETTINGS)
    harden("adversarial", pico_vit, make_dataset(), out=tmp_path / "whole", **SETTINGS)
    resumed, whole = (load_file(tmp_path / n / "model.safetensors") for n in ("killed", "whole"))
    assert resumed.keys() == whole.keys()
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)
    assert not state.exists()


def test_slow_steps_are_saved_by_the_clock(pico_vit: Path, tmp_path: Path) -> None:
    seen: list[int] = []
    path = tmp_path / "state.pt"

    def slow(step):  # type: ignore[no-untyped-def]
        if path.exists():
            seen.append(torch.load(path, weights_only=True)["step"])
        return nominal()(step)

    data: Dataset = make_dataset()
    resume = Resume(path, every=1000, seconds=0.0)
    train(load_model(pico_vit), data, slow, resume=resume, epochs=1, batch_size=8)
    assert seen == [1, 2, 3, 4]
