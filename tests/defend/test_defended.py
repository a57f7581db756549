"""Defended classifiers: classifiers like any other, with the change applied once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from pico import make_classifier
from stockpot.defend import defences
from stockpot.defend.clahe import equalise_colour
from stockpot.defend.defended import Defended, defend
from stockpot.defend.nlm import denoise, estimate_noise
from stockpot.defend.ten_crop import crops
from stockpot.errors import BadParameterError, UnknownNameError, UserError


class MeanColour(nn.Module):
    """Logits from the mean of each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 4)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.head(self.features(pixels))  # type: ignore[no-any-return]

    def features(self, pixels: Tensor) -> Tensor:
        return pixels.mean((2, 3))


@pytest.fixture
def pixels() -> Tensor:
    return torch.rand(3, 3, 40, 32, generator=torch.Generator().manual_seed(0))


def test_the_room_lists_its_defences() -> None:
    assert defences.names() == ["clahe", "nlm", "ten_crop"]
    assert [row.name for row in defences.get("clahe").parameters] == ["clip", "tiles"]


@pytest.mark.parametrize("name", ["clahe", "nlm", "ten_crop"])
def test_a_defended_model_is_a_classifier(name: str, pixels: Tensor) -> None:
    model = make_classifier(MeanColour())
    defended = defend(model, name)
    assert defended.classes == model.classes
    assert defended.parameter_count == model.parameter_count
    assert name in defended.origin.source
    assert defended.origin.fingerprint != model.origin.fingerprint
    with torch.inference_mode():
        logits = defended(pixels)
        assert logits.shape == (3, 4)
        assert torch.allclose(logits[1:2], defended(pixels[1:2]), atol=1e-5)
        assert defended.features(pixels).shape == (3, 3)
        levels = (pixels * 255).round().to(torch.uint8)
        assert torch.allclose(defended(levels), defended(levels.float() / 255), atol=1e-6)


def test_the_change_comes_before_the_model(pixels: Tensor) -> None:
    model = make_classifier(MeanColour())
    expected = model(equalise_colour(pixels, 4.0, 2))
    assert torch.allclose(defend(model, "clahe", clip=4.0, tiles=2)(pixels), expected)


def test_ten_crop_averages_probabilities(pixels: Tensor) -> None:
    model = make_classifier(MeanColour())
    result = defend(model, "ten_crop", crop=0.5)(pixels).softmax(1)
    views = crops(pixels, 0.5).view(10, 3, 3, 20, 16)
    assert torch.equal(views[4], pixels[..., 10:30, 8:24])
    assert torch.equal(views[8], pixels[..., 20:, 16:].flip(3))
    expected = torch.stack([model(view).softmax(1) for view in views]).mean(0)
    assert torch.allclose(result, expected, atol=1e-6)


def test_defences_stack(pixels: Tensor) -> None:
    model = make_classifier(MeanColour())
    both = defend(defend(model, "clahe"), "ten_crop", crop=1.0)
    assert isinstance(both, Defended)
    mirrored = torch.cat([pixels, pixels.flip(3)])
    chances = defend(model, "clahe")(mirrored).softmax(1)
    expected = (chances[:3] + chances[3:]) / 2
    assert torch.allclose(both(pixels).softmax(1), expected, atol=1e-5)


def test_the_noise_estimate_finds_the_noise() -> None:
    generator = torch.Generator().manual_seed(1)
    smooth = torch.linspace(0.3, 0.7, 96).expand(2, 3, 96, 96)
    noise = torch.randn(smooth.shape, generator=generator)
    noisy = smooth + noise * torch.tensor([0.02, 0.08]).view(2, 1, 1, 1)
    assert torch.allclose(estimate_noise(noisy), torch.tensor([0.02, 0.08]), rtol=0.05)
    quiet = denoise(noisy, torch.tensor([0.02, 0.08]), torch.tensor([0.016, 0.064]), 7, 5)
    assert ((quiet - smooth).std((1, 2, 3)) < 0.5 * (noisy - smooth).std((1, 2, 3))).all()
    flat = torch.full((1, 3, 20, 20), 0.4)
    assert torch.allclose(denoise(flat, estimate_noise(flat), estimate_noise(flat), 7, 5), flat)


def test_mistakes_are_explained(tmp_path: Path) -> None:
    model = make_classifier(MeanColour())
    with pytest.raises(UnknownNameError, match="clahe"):
        defend(model, "clah")
    with pytest.raises(BadParameterError, match="clip"):
        defend(model, "clahe", clip=-1)
    with pytest.raises(BadParameterError, match="crop"):
        defend(model, "ten_crop", crop=2)
    with pytest.raises(BadParameterError, match="odd"):
        defend(model, "nlm", patch=4)
    with pytest.raises(UserError, match="defence"):
        defend(model, "clahe").save(tmp_path)
