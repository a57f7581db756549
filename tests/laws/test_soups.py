"""Soups have one owner: `fuse` and `season` choose the same weights from the same images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from season.toys import linear_member, norm_member, toy_images
from stockpot.fuse.run import fuse
from stockpot.season.run import season

SHOTS, BATCH = 40, 16
STEPS = 2 * -(-SHOTS // BATCH)
# Season's name and settings, fuse's name and settings, whether images are needed.
SAME: dict[str, tuple[dict[str, Any], str, dict[str, Any], bool]] = {
    "uniform": ({}, "uniform_soup", {}, False),
    "wise_ft": ({"alphas": (0.3,)}, "wise_ft", {"alpha": 0.3}, False),
    "greedy": ({}, "greedy_soup", {"batch_size": BATCH}, True),
    "learned": ({"steps": STEPS}, "learned_soup", {"epochs": 2, "batch_size": BATCH}, True),
}


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("make", [linear_member, norm_member])
@pytest.mark.parametrize("name", SAME)
def test_fuse_and_season_make_the_same_soup(name: str, make, seed: int, tmp_path: Path) -> None:
    settings, fuser, own, needs_images = SAME[name]
    members = [make(number) for number in ((1, 2) if name == "wise_ft" else (1, 2, 3))]
    images = toy_images(90, members[-1], noise=0.2)
    seasoned = season(name, members, images, shots=SHOTS, batch_size=BATCH, seed=seed, **settings)
    if needs_images:
        own = {**own, "tasks": images.take(torch.tensor(seasoned.selected_on))}
        own["save"] = str(tmp_path / "learned")
    if name == "learned":
        own["seed"] = seed
    fused = fuse(fuser, members, **own)
    if needs_images:
        weights = load_file(tmp_path / "learned.safetensors")["weights"]
        if name == "greedy":
            assert tuple(weights.tolist()) == seasoned.weights
        else:
            by_tensor = seasoned.tensor_weights
            assert by_tensor is not None
            assert not torch.allclose(weights, torch.full_like(weights, 1 / 3), atol=1e-3)
            order = [f"network.{key}" for key in fused if fused[key].is_floating_point()]
            want = torch.stack([by_tensor[key] for key in order], dim=1)
            torch.testing.assert_close(weights, want, rtol=1e-4, atol=1e-5)
    soup = seasoned.model.state_dict()
    for key, value in fused.items():
        torch.testing.assert_close(value, soup[f"network.{key}"], rtol=1e-4, atol=1e-5)
