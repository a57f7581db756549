"""LeNet as an architecture: sizes on paper, saving, and grey eyes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from stockpot.models.huggingface import new_huggingface
from stockpot.models.load import load_model
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize

SIDE = ImageSize(28, 28)
PLAIN = Preprocess(SIDE, SIDE, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


def make(kind: str = "lenet", **settings):
    classes = tuple("abcdefghij")
    return new_huggingface(kind, classes=classes, preprocess=PLAIN, seed=0, **settings).eval()


def test_the_parameters_of_lenet_on_paper() -> None:
    # 5x5 filters: 1 -> 6 -> 16 maps; 16 x 5 x 5 = 400 -> 120 -> 84 -> 10, with biases.
    expected = (25 + 1) * 6 + (6 * 25 + 1) * 16 + 401 * 120 + 121 * 84 + 85 * 10
    assert make(num_channels=1).parameter_count == expected == 61706


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    model, pixels = make(), torch.rand(2, 3, 28, 28)
    loaded = load_model(model.save(tmp_path / "net"))
    assert torch.equal(loaded(pixels), model(pixels))
    assert loaded.features(pixels).shape == (2, 84)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("lenet", {}),
        ("small_resnet", {"embedding_size": 4, "hidden_sizes": [4], "depths": [1]}),
    ],
)
def test_one_channel_sees_no_colour(kind: str, settings: dict) -> None:
    model, pixels = make(kind, num_channels=1, **settings), torch.rand(2, 3, 28, 28)
    grey = pixels.mean(dim=1, keepdim=True).expand(-1, 3, -1, -1)
    assert torch.allclose(model(pixels), model(grey), atol=1e-5)
    assert not torch.allclose(make(kind, **settings)(pixels), make(kind, **settings)(grey))
