"""A loss that is no number ends a training with its step, and never gets into a saved state."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pico import make_dataset
from stockpot.errors import UserError
from stockpot.harden.loop import train
from stockpot.harden.nominal import nominal
from stockpot.harden.state import Resume
from stockpot.models.load import load_model


@pytest.mark.parametrize("broken", ["loss", "weights"])
def test_a_loss_that_is_no_number(broken: str, pico_vit: Path, tmp_path: Path) -> None:
    path = tmp_path / "state.pt"

    def objective(step):  # type: ignore[no-untyped-def]
        loss = nominal()(step)
        if broken == "loss" and step.number == 6:  # the seventh step
            return loss * torch.nan
        if broken == "weights" and step.number == 8:  # its own loss was still one
            next(step.model.parameters()).data.fill_(torch.inf)
        return loss

    told = "nan at step 7 of 15" if broken == "loss" else "after step 9 of 15"
    with pytest.raises(UserError, match=rf"no longer .*{told}.*after step 6 is kept.*smaller lr"):
        train(
            load_model(pico_vit), make_dataset(), objective, resume=Resume(path, every=3),
            epochs=3, batch_size=8,
        )  # fmt: skip
    state = torch.load(path, weights_only=True)
    assert state["step"] == 6
    assert all(bool(torch.isfinite(one).all()) for one in state["model"].values())
