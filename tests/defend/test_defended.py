"""Defended classifiers: classifiers like any other, with the change applied once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from pico import make_classifier
from stockpot.datasets.load import load_dataset
from stockpot.defend import defences
from stockpot.defend.clahe import equalise_colour
from stockpot.defend.defended import Defended, defend
from stockpot.defend.nlm import denoise, estimate_noise
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
    still = [name for name in defences.names() if not defences.get(name).tags.adapts]
    assert still == ["clahe", "nlm", "ten_crop"]
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


class Views(MeanColour):
    """Keeps what it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []

    def forward(self, pixels: Tensor) -> Tensor:
        self.seen.append(pixels)
        return super().forward(pixels)


def test_ten_crop_takes_its_views_of_the_resized_picture_once(tmp_path: Path) -> None:
    """As published: short side to 32, the middle 32 x 32, ten pieces of 28 x 28 of that."""
    coarse = np.random.default_rng(0).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    picture = Image.fromarray(coarse).resize((64, 48), Image.Resampling.BICUBIC)
    (tmp_path / "class").mkdir()
    picture.save(tmp_path / "class" / "one.png")
    model = make_classifier(Views(), size=28)
    model.preprocess = replace(model.preprocess, resized=32, interpolation="bilinear")
    defended = defend(model, "ten_crop")
    (batch,) = load_dataset(str(tmp_path)).batches(4, defended.preprocess.fit)
    chances = defended(batch.images).softmax(1)
    resized = picture.resize((42, 32), Image.Resampling.BILINEAR).crop((5, 0, 37, 32))
    pixels = torch.from_numpy(np.array(resized)).permute(2, 0, 1) / 255
    corners = [pixels[:, top : top + 28, left : left + 28] for top in (0, 4) for left in (0, 4)]
    views = [*corners, pixels[:, 2:30, 2:30]]
    views = torch.stack([*views, *(view.flip(2) for view in views)])
    assert torch.allclose(torch.cat(model.network.seen), views, atol=1e-6)
    assert torch.allclose(chances, model.network(views).softmax(1).mean(0), atol=1e-6)
    assert "28x28 of 32x32" in defended.origin.source


def test_ten_crop_cuts_no_rim_that_the_model_does_not_cut(pixels: Tensor) -> None:
    model = make_classifier(MeanColour())
    result = defend(model, "ten_crop")(pixels).softmax(1)
    expected = torch.stack([model(view).softmax(1) for view in (pixels, pixels.flip(3))]).mean(0)
    assert torch.allclose(result, expected, atol=1e-6)
    narrow = defend(model, "ten_crop", crop=0.5)
    assert narrow.preprocess.size == (32, 32)
    assert narrow(pixels).shape == (3, 4)


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


def test_the_network_sees_one_view_at_a_time() -> None:
    """Ten views of a batch at once would take ten times the memory that a batch size allows."""
    model = make_classifier(MeanColour())
    sizes: list[int] = []
    model.network.register_forward_pre_hook(lambda _, given: sizes.append(len(given[0])))
    pixels = torch.rand(6, 3, *model.preprocess.size)
    with torch.no_grad():
        defend(model, "ten_crop", crop=0.5)(pixels)
    assert sizes == [6] * 10


def test_nlm_asks_for_no_exponent_that_underflows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such exponents weigh nothing, and a processor takes twice as long for them."""
    asked: list[float] = []
    exp = torch.exp

    def noted(exponent: Tensor) -> Tensor:
        asked.append(float(exponent.min()))
        return exp(exponent)

    pixels = torch.zeros(1, 3, 24, 24)
    pixels[..., 12:] = 1  # patches that have nothing in common
    pixels += 0.001 * torch.randn(pixels.shape, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(torch, "exp", noted)
    sigma = torch.tensor([0.001])
    denoise(pixels, sigma, sigma, patch=3, distance=3)
    assert len(asked) == 49
    assert min(asked) > -80
