"""At which size corruptions are made, and what of a picture reaches the model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from pico import make_classifier, make_dataset
from stockpot.corrupt.apply import corrupt
from stockpot.corrupt.sizes import one_size
from stockpot.datasets.dataset import TensorImages
from stockpot.datasets.load import load_dataset
from stockpot.measure.corruption import corruption
from stockpot.measure.measurement import Context
from stockpot.models.classifier import Classifier

NOISE: dict[str, Any] = {"corruptions": "gaussian_noise", "severities": 5, "baseline": "none"}


class Watches(nn.Module):
    """Keeps the pictures it was shown, batch by batch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.seen: list[Tensor] = []

    def forward(self, pixels: Tensor) -> Tensor:
        self.seen.append(pixels.clone())
        return pixels.new_zeros(len(pixels), 2) + self.weight


def watching(size: int, resized: int) -> tuple[Classifier, list[Tensor]]:
    network = Watches()
    network.weight.data += size + resized  # another model to the cache
    model = make_classifier(network, ("a", "b"), size)
    model.preprocess = replace(model.preprocess, resized=resized, interpolation="bilinear")
    return model, network.seen


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    for number, size in enumerate(((320, 280), (300, 260), (256, 300))):
        coarse = np.random.default_rng(number).integers(0, 256, (6, 7, 3), dtype=np.uint8)
        folder = root / "ab"[number % 2]
        folder.mkdir(exist_ok=True)
        Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(
            folder / f"{number}.png"
        )
    return root


def published(path: Path) -> Tensor:
    """By hand: short side to 256, the middle 224."""
    with Image.open(path) as picture:
        short = min(picture.size)
        size = tuple(256 if one == short else int(256 * one / short) for one in picture.size)
        left, top = (round((one - 224) / 2) for one in size)
        resized = picture.resize((size[0], size[1]), Image.Resampling.BILINEAR)
        return torch.from_numpy(np.array(resized.crop((left, top, left + 224, top + 224))))


def test_photographs_are_corrupted_at_224_px_whatever_the_model(photos: Path) -> None:
    data = load_dataset(str(photos))
    files = data.columns["file"]
    clean = torch.stack([published(photos / file) for file in files]).permute(0, 3, 1, 2)
    worse = corrupt(clean, "gaussian_noise", 5, seed=0, profile="imagenet").float() / 255
    for size, resized in ((224, 256), (288, 320), (64, 64)):
        model, seen = watching(size, resized)
        found = corruption(model, data, Context(), **NOISE)
        expected = F.interpolate(worse, size=(size, size), mode="bilinear", antialias=True)
        assert (seen[1] - expected).abs().max() <= 0.51 / 255
        # Clean pictures are seen as in any other measure.
        fitted = torch.cat([batch.images for batch in data.batches(9, model.preprocess.fit)])
        assert torch.equal(seen[0], fitted.float() / 255)
        assert any("imagenet constants at 224x224 (size=published" in note for note in found.notes)
    assert any("resized whole to 64x64" in note for note in found.notes)


def test_the_size_of_the_model_is_an_option_and_named(photos: Path) -> None:
    data = load_dataset(str(photos))
    model, seen = watching(64, 80)
    found = corruption(model, data, Context(), **NOISE, size="model")
    fitted = torch.cat([batch.images for batch in data.batches(9, model.preprocess.fit)])
    expected = corrupt(fitted, "gaussian_noise", 5, seed=0, profile="tinyimagenet")
    assert torch.equal(seen[1], expected.float() / 255)
    assert any("tinyimagenet constants at 64x64 (size=model" in note for note in found.notes)


@pytest.mark.parametrize("kind", ["folder", "decoded"])
def test_small_pictures_of_one_size_stay_as_they_are(kind: str, tmp_path: Path) -> None:
    data = make_dataset(n=6, size=32, classes=("a", "b"))
    assert isinstance(data.images, TensorImages)
    pixels = data.images.pixels
    if kind == "folder":
        for row, label in enumerate(data.labels.tolist()):
            (tmp_path / "ab"[label]).mkdir(exist_ok=True)
            picture = pixels[row].permute(1, 2, 0).numpy()
            Image.fromarray(picture).save(tmp_path / "ab"[label] / f"{row}.png")
        data = load_dataset(str(tmp_path))
        pixels = torch.cat([batch.images for batch in data.batches(9)])
    assert one_size(data.images) == (32, 32)
    model, seen = watching(48, 48)
    found = corruption(model, data, Context(), **NOISE)
    worse = corrupt(pixels, "gaussian_noise", 5, seed=0, profile="cifar").float() / 255
    expected = F.interpolate(worse, size=(48, 48), mode="bilinear", antialias=True)
    assert torch.allclose(seen[1], expected, atol=1e-6)
    assert any("cifar constants at 32x32 (the pictures' own size" in n for n in found.notes)


@pytest.mark.parametrize(("size", "cut"), [("published", False), ("model", True)])
def test_stored_pictures_of_224_px_are_not_cropped_again(
    size: Any, cut: bool, photos: Path, tmp_path: Path
) -> None:
    """A white frame of four pixels; resize 256 and crop 224 would cut it off."""
    data = load_dataset(str(photos))
    framed = np.full((224, 224, 3), 255, dtype=np.uint8)
    framed[4:-4, 4:-4] = 0
    for file in data.columns["file"]:
        place = tmp_path / "contrast" / "3" / file
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(framed).save(place)
    model, seen = watching(224, 256)
    found = corruption(
        model,
        data,
        Context(),
        corruptions="contrast",
        severities=3,
        baseline="none",
        folder=str(tmp_path),
        size=size,
    )
    assert float(seen[-1][:, :, 0].max()) == (0.0 if cut else 1.0)
    assert any(f"size={size}" in note for note in found.notes)
