"""ESM equals its authors' program, and on a network what that makes of the network's inputs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from other_machine import on_another_machine
from pico import make_classifier
from stockpot.fuse.run import fuse
from stockpot.fuse.statistics.esm import Parts, by_kind
from task_pools import random_dataset

RECORDED = load_file(Path(__file__).parent / "data" / "fuse" / "esm.safetensors")
NAMES = sorted(key.removeprefix("esm/") for key in RECORDED if key.startswith("esm/"))
CLASSES = ("a", "b", "c", "d")


@pytest.mark.parametrize("machine", ["this", "another"])
def test_the_authors_program(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if machine == "another":
        on_another_machine(monkeypatch)
    merged = {}
    for name in NAMES:
        parts = Parts(3, energy=0.15, power=2.0, tolerance=1e-5)
        for number in range(3):
            inputs = RECORDED[f"x{number}/{name}"].double()
            parts.add(RECORDED[f"m{number}/{name}"].double(), inputs.T @ inputs / len(inputs))
        merged[name] = parts.merged()
    for name, change in by_kind(merged, 2.0).items():
        torch.testing.assert_close(change.float(), RECORDED[f"esm/{name}"], rtol=1e-3, atol=1e-4)


class Wide(nn.Module):
    """One linear layer on all pixels, and a bias apart from it."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.first = nn.Linear(12, 4)
        self.first.weight.data = torch.randn(4, 12, generator=draw)
        self.first.bias.data = torch.randn(4, generator=draw)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.first(pixels.flatten(1))


def test_on_a_network() -> None:
    """A member that changes by rank one, and one that does not change, are no obstacle."""
    base, *members = (make_classifier(Wide(seed), CLASSES, size=2) for seed in range(4))
    sides = torch.randn(4, 1), torch.randn(1, 12)
    with torch.no_grad():
        members[1].network.first.weight.copy_(base.network.first.weight + sides[0] @ sides[1])
        members[2].network.first.weight.copy_(base.network.first.weight)
    tasks = [random_dataset(CLASSES, n=16, seed=seed, side=2) for seed in (4, 5, 6)]
    got = fuse("esm", members, base=base, tasks=tasks, examples=16, scale=0.5)
    start = base.network.first
    parts = Parts(3, energy=0.15, power=2.0, tolerance=1e-5)
    for member, data in zip(members, tasks, strict=True):
        pixels = torch.cat([batch.images for batch in data.batches(16)]).float() / 255
        inputs = member.preprocess.normalise(pixels).flatten(1).double()
        change = (member.network.first.weight - start.weight).detach().double()
        parts.add(change, inputs.T @ inputs / len(inputs))
    want = start.weight.double() + 0.5 * parts.merged()
    torch.testing.assert_close(got["first.weight"].double(), want.detach(), rtol=1e-4, atol=1e-5)
    mean = torch.stack([m.network.first.bias for m in members]).mean(0)
    bias = start.bias + 0.5 * (mean - start.bias)
    torch.testing.assert_close(got["first.bias"], bias.detach(), rtol=1e-5, atol=1e-6)
