"""The ResNet for small pictures: its shape, and the way to a folder and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from stockpot.models.classifier import Classifier
from stockpot.models.huggingface import new_huggingface
from stockpot.models.load import load_model
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize

CLASSES = tuple(f"class {index}" for index in range(10))


def make(width: int, size: int = 32, **config: int) -> Classifier:
    side = ImageSize(size, size)
    return new_huggingface(
        "small_resnet", classes=CLASSES, preprocess=Preprocess(side, side), seed=0,
        embedding_size=width, hidden_sizes=[width, 2 * width, 4 * width, 8 * width],
        depths=[2, 2, 2, 2], layer_type="basic", **config,
    )  # fmt: skip


def test_a_full_one_has_the_weights_of_a_cifar_resnet18() -> None:
    # 3x3 stem, four stages of two basic blocks, a head for ten classes: 11,173,962 by hand.
    def block(a: int, b: int) -> int:
        return 9 * a * b + 9 * b * b + 4 * b + (a * b + 2 * b if a != b else 0)

    stages = [(64, 64), (64, 128), (128, 256), (256, 512)]
    expected = 27 * 64 + 128 + sum(block(a, b) + block(b, b) for a, b in stages) + 5130
    assert expected == 11_173_962
    assert make(64).parameter_count == expected


@pytest.mark.parametrize(("stride", "places"), [(1, 32), (2, 16)])
def test_the_stem_pools_nothing(stride: int, places: int) -> None:
    stem = make(4, stem_stride=stride).network.model.resnet.embedder  # type: ignore[union-attr]
    assert stem(torch.rand(1, 3, 32, 32)).shape == (1, 4, places, places)


@pytest.mark.parametrize("stride", [1, 2])
def test_saved_and_loaded_it_says_the_same(stride: int, tmp_path: Path) -> None:
    model = make(4, stem_stride=stride).eval()
    model.save(tmp_path / "m")
    assert json.loads((tmp_path / "m" / "config.json").read_text())["stem_stride"] == stride
    again = load_model(tmp_path / "m")
    pixels = torch.rand(3, 3, 32, 32)
    with torch.inference_mode():
        assert torch.equal(model(pixels), again.eval()(pixels))
    assert again.classes == CLASSES
