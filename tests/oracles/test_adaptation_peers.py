"""Test-time adaptation against the authors' benchmark program, on a stream of four tiny batches.

The logits in `data/adaptation.json` are those of github.com/mariodoebler/test-time-adaptation,
which holds the methods of all these papers, for the network and pictures below. Its random views
were replaced by negatives there, as here, and CoTTA restored nothing.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pico import make_classifier
from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.defend.adapt import cotta, eata, roid
from stockpot.defend.defended import defend

RECORDED = json.loads((Path(__file__).parent / "data" / "adaptation.json").read_text())
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "tent": ("tent", {}),
    "tent-sgd": ("tent", {"optimiser": "sgd"}),
    "sar": ("sar", {"recovery": 0}),
    "sar-reset": ("sar", {"recovery": 0.235}),
    "eta": ("eata", {"optimiser": "adam", "similarity": 0.97}),
    "eata": ("eata", {"optimiser": "adam", "similarity": 0.97, "fisher": 20, "source": "photos"}),
    "cotta": ("cotta", {"momentum": 0.9, "restore": 0, "views": 4}),
    "roid": ("roid", {"ensembling": 0.9}),
}


def wave(shape: tuple[int, ...], phase: float, scale: float) -> Tensor:
    places = torch.arange(math.prod(shape), dtype=torch.float64)
    return (torch.sin(places * 1.7 + phase) * scale).reshape(shape)


def pictures(count: int, phase: float) -> Tensor:
    tint = (torch.arange(count, dtype=torch.float64) * 0.37 + phase).sin() * 0.3
    shown = wave((count, 3, 6, 6), phase, 0.5) + 0.5 + tint[:, None, None, None]
    return (shown.clamp(0, 1) * 255).round().to(torch.uint8)


def network() -> nn.Sequential:
    """Two layers of two channels."""
    made = nn.Sequential(
        *(nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Conv2d(2, 2, 3), nn.BatchNorm2d(2)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 3)),
    )
    with torch.no_grad():
        for number, weight in enumerate(made.parameters()):
            weight.copy_(wave(tuple(weight.shape), number, 0.6))
        for layer in (made[1], made[4]):
            layer.weight.fill_(1.2)
            layer.running_mean.fill_(0.1)  # type: ignore[operator]
            layer.running_var.fill_(0.5)  # type: ignore[operator]
        made[7].weight.mul_(12)
    return made.eval()


@pytest.mark.parametrize("name", SETTINGS)
def test_answers_are_those_of_the_peer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = TensorImages(pictures(64, 5.0))
    data = Dataset("photos", "train", source, torch.zeros(64, dtype=torch.long), ("a",), "")
    monkeypatch.setattr(eata, "load_dataset", lambda *_, **__: data)
    for module in (cotta, roid):
        monkeypatch.setattr(module, "random_view", lambda pixels, *_, **__: 1 - pixels)
    method, params = SETTINGS[name]
    model = defend(make_classifier(network(), ("a", "b", "c"), 6), method, lr=0.05, **params)
    found = torch.stack([model(pictures(8, float(batch))) for batch in range(4)])
    assert torch.allclose(found, torch.tensor(RECORDED[name]), atol=3e-5)
