"""Wide ResNets: their size on paper, and RobustBench's network of the same names and weights."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch

from pico import make_dataset
from stockpot.checkpoints.record import read_record
from stockpot.errors import UserError
from stockpot.models.architectures.named import settings_of
from stockpot.models.architectures.wide_resnet import (
    WideResNetConfig,
    WideResNetForImageClassification,
)
from stockpot.models.classifier import Classifier
from stockpot.models.huggingface import new_huggingface
from stockpot.models.load import load_model
from stockpot.models.new import new_model
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize

SIDE = ImageSize(32, 32)
PLAIN = Preprocess(SIDE, SIDE, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


def make(name: str, classes: int = 10, **settings: int) -> Classifier:
    names = tuple(f"class {index}" for index in range(classes))
    return new_huggingface(name, classes=names, preprocess=PLAIN, seed=0, **settings).eval()


@torch.no_grad()
def fill(model: torch.nn.Module) -> None:
    """Weights that two programs can write down alike."""
    for number, (name, value) in enumerate(sorted(model.state_dict().items())):
        if value.is_floating_point():
            wave = torch.sin(torch.arange(value.numel(), dtype=torch.float64) * 0.7 + number)
            wave = wave.view(value.shape)
            if "bn" in name and name.endswith(("weight", "running_var")):
                value.copy_(1 + 0.3 * wave)
            else:
                value.copy_(wave * (value[0].numel() ** -0.5 if value.ndim > 1 else 0.2))


def test_the_published_one_has_36_5_million_weights() -> None:
    assert settings_of("wrn-28-10", 32) == ("wide_resnet", {"depth": 28, "widen_factor": 10})
    with torch.device("meta"):
        model = WideResNetForImageClassification(WideResNetConfig(num_labels=10))
    assert sum(parameter.numel() for parameter in model.parameters()) == 36_479_194


def test_names_and_logits_are_those_of_robustbench() -> None:
    # Recorded from robustbench.model_zoo.architectures.wide_resnet.WideResNet(16, 3, 2).
    model = make("wrn-16-2", classes=3)
    network = model.network.model
    fill(network)
    names = "\n".join(sorted(network.state_dict()))
    assert hashlib.sha256(names.encode()).hexdigest()[:16] == "1769d533370d1fb2"
    pixels = torch.sin(torch.arange(2 * 3 * 32 * 32, dtype=torch.float64) * 0.01).float()
    expected = torch.tensor(
        [[-155.96861, -104.85605, 169.51476], [-152.07372, -101.91419, 165.23994]]
    )
    with torch.inference_mode():
        found = model(pixels.view(2, 3, 32, 32) * 0.5 + 0.5)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_it_is_made_saved_and_loaded(tmp_path: Path) -> None:
    new_model("wrn-10-1", make_dataset(), tmp_path / "net", size=16, seed=3)
    first, again = load_model(tmp_path / "net"), load_model(tmp_path / "net")
    pixels = torch.rand(2, 3, 16, 16)
    with torch.inference_mode():
        assert torch.equal(first(pixels), again(pixels))
    assert read_record(tmp_path / "net").method == "wrn-10-1"
    filters = first.network.model.block3.layer[0].conv2.weight  # type: ignore[union-attr]
    assert float(filters.detach().std()) == pytest.approx(
        (2 / (9 * 64)) ** 0.5, rel=0.05
    )  # as published
    with pytest.raises(UserError, match=r"depth: expected 10, 16, 22, \.\.\. \(6 n \+ 4\), got 11"):
        make("wrn-11-1")
