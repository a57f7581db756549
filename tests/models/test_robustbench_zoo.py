"""Names of RobustBench's zoo, against a stand-in with the interface of its package.

With the package itself, its loader and ours gave equal outputs for a model of its zoo.
"""

from __future__ import annotations

import sys
from enum import Enum
from types import ModuleType

import pytest
import torch
from torch import nn

import stockpot
from commands import invoke
from stockpot.errors import UserError


class BenchmarkDataset(Enum):
    cifar_10 = "cifar10"
    cifar_100 = "cifar100"
    imagenet = "imagenet"


class ThreatModel(Enum):
    Linf = "Linf"
    L2 = "L2"
    corruptions = "corruptions"


class Tiny(nn.Module):
    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(3, outputs)

    def forward(self, pixels):
        return self.layer(pixels.mean(dim=(2, 3)))


@pytest.fixture
def zoo(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    asked: list[dict[str, str]] = []

    def load_model(model_name, model_dir="./models", dataset="cifar10", threat_model="Linf"):
        asked.append({"name": model_name, "folder": model_dir, "data": dataset, "on": threat_model})
        if model_name == "Rice2020Overfitting":
            raise FileNotFoundError("no network")
        torch.manual_seed(0)
        return Tiny({"cifar10": 10, "cifar100": 100, "imagenet": 1000}[dataset])

    small = {name: {"gdrive_id": "x"} for name in ("Carmon2019Unlabeled", "Rice2020Overfitting")}
    large = {
        "Salman2020Do_R18": {"preprocessing": "Res256Crop224"},
        "Liu2023Comprehensive_Swin-B": {"preprocessing": "BicubicRes256Crop224"},
        "Mo2022When_ViT-B": {"preprocessing": "Res224"},
        "Wong2020Fast": {"preprocessing": "Crop288"},
    }
    dicts = {
        each: dict.fromkeys(ThreatModel, large if each.value == "imagenet" else small)
        for each in BenchmarkDataset
    }
    modules = {
        "robustbench": {},
        "robustbench.model_zoo": {},
        "robustbench.model_zoo.models": {"model_dicts": dicts},
        "robustbench.model_zoo.enums": {
            "BenchmarkDataset": BenchmarkDataset,
            "ThreatModel": ThreatModel,
        },
        "robustbench.utils": {"load_model": load_model},
        "timm": {"is_model": lambda name: False},
    }
    for name, content in modules.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    return asked


def test_a_name_is_the_zoos_model_on_plain_pixels(zoo, tmp_path) -> None:
    model = stockpot.load_model("robustbench:cifar100/L2/Carmon2019Unlabeled", folder=str(tmp_path))
    wanted = {"name": "Carmon2019Unlabeled", "folder": str(tmp_path), "data": "cifar100"}
    assert zoo == [wanted | {"on": "L2"}]
    pixels = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(0)
    assert torch.equal(model(pixels), Tiny(100)(pixels))
    short = stockpot.load_model("robustbench:Carmon2019Unlabeled")
    assert (zoo[1]["data"], zoo[1]["on"]) == ("cifar10", "Linf")
    assert short.classes[:2] == ("airplane", "automobile")


@pytest.mark.parametrize(
    ("name", "fit"),
    [
        ("Salman2020Do_R18", "resize 256 bilinear | crop 224x224"),
        ("Liu2023Comprehensive_Swin-B", "resize 256 bicubic | crop 224x224"),
        ("Mo2022When_ViT-B", "resize 224x224 bilinear | crop 224x224"),
    ],
)
def test_pictures_are_fitted_as_the_zoo_fits_them(zoo, name: str, fit: str) -> None:
    model = stockpot.load_model(f"robustbench:imagenet/Linf/{name}")
    assert str(model.preprocess).startswith(fit)
    assert str(model.preprocess).endswith("normalise 0:1/0:1/0:1")
    assert len(model.classes) == 1000


def test_mistakes_say_what_to_do(zoo) -> None:
    for source, message in {
        "robustbench:Carmon2019Unlabelled": "Did you mean Carmon2019Unlabeled",
        "robustbench:cifar10/linf/Carmon2019Unlabeled": "Did you mean Linf",
        "robustbench:cifar/Linf/Carmon2019Unlabeled": "Did you mean cifar10",
        "robustbench:cifar10/Linf": "expected robustbench:DATASET/THREAT/NAME",
        "robustbench:Rice2020Overfitting": r"could not load it \(no network\).*folder=DIR",
        "robustbench:imagenet/Linf/Wong2020Fast": "crops without resizing",
    }.items():
        with pytest.raises(UserError, match=message):
            stockpot.load_model(source)


def test_without_the_package_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "robustbench", None)
    done = invoke("measure", "robustbench:Carmon2019Unlabeled", "--data", "icons", "--limit", 4)
    assert done.exit_code == 1
    assert "pip install git+https://github.com/RobustBench/robustbench" in done.output
