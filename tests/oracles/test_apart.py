"""ZipIt! and PLeaS equal their authors' programs (`data/apart/README.md`)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from pico import make_classifier, make_dataset
from residual import Residual
from stockpot.datasets.dataset import TensorImages
from stockpot.fuse.permutation import pleas as pleas_file
from stockpot.fuse.permutation.match import Permutations
from stockpot.fuse.permutation.networks import Networks
from stockpot.fuse.run import fuse
from stockpot.models.classifier import Classifier

RECORDED = load_file(Path(__file__).parent / "data" / "apart" / "recorded.safetensors")
DATA = replace(make_dataset(32, 8), images=TensorImages(RECORDED["images"]))


def part(name: str) -> dict[str, Tensor]:
    return {k.removeprefix(name): v for k, v in RECORDED.items() if k.startswith(name)}


def networks(count: int) -> list[Classifier]:
    found = []
    for number in range(count):
        network = Residual()
        network.load_state_dict(part(f"net{number}/"), strict=False)
        found.append(make_classifier(network, size=8))
    return found


@pytest.mark.parametrize(("count", "alpha", "beta"), [(2, 0.3, 0.5), (2, 1.0, 1.0), (3, 0.3, 0.5)])
def test_zipit(count: int, alpha: float, beta: float) -> None:
    got = fuse("zipit", networks(count), tasks=DATA, alpha=alpha, beta=beta, repair=False)
    want = part(f"zipit_{count}_{alpha}_{beta}/")
    assert len(want) == 32
    for name, value in want.items():
        # Theirs divides by a count that is 1e-5 too large.
        torch.testing.assert_close(got[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("ridge", "name", "near"), [(1e9, "permuted/", 1e-6), (0, "pleas/", 4e-3)])
def test_pleas(ridge: float, name: str, near: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order that theirs found: matching visits groups in an order of its own."""

    def given(seen: Networks) -> tuple[Permutations, ...]:
        found = {
            group: RECORDED[f"perm/{axis.tensor}"]
            for group, axes in seen.spec.axes.items()
            for axis in axes
            if axis.axis == 0 and f"perm/{axis.tensor}" in RECORDED
        }
        return {group: torch.arange(len(units)) for group, units in found.items()}, found

    monkeypatch.setattr(pleas_file, "_by_weights", given)
    got = fuse("pleas", networks(2), tasks=DATA, ridge=ridge, repair=False)
    want = part(name)
    assert len(want) == 6
    for tensor, value in want.items():
        torch.testing.assert_close(got[tensor], value, rtol=0, atol=near)
