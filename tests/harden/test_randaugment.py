"""RandAugment: its changes have the meanings that Pillow gives them, and draws are the image's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance

from stockpot.harden.augment import augment
from stockpot.harden.randaugment import KINDS, randaugment


def pictures(n: int = 6, size: int = 16) -> torch.Tensor:
    return torch.rand(n, 3, size, size, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", ["brightness", "contrast", "colour"])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_enhancements_agree_with_pillow(name: str, sign: float) -> None:
    level = 0.5
    grey = (pictures(1) * 255).round()
    ours = KINDS[name](grey / 255, torch.full((1,), level), torch.full((1,), sign))
    image = Image.fromarray(grey[0].permute(1, 2, 0).to(torch.uint8).numpy())
    enhance = {"brightness": "Brightness", "contrast": "Contrast", "colour": "Color"}[name]
    theirs = getattr(ImageEnhance, enhance)(image).enhance(1 + 0.9 * level * sign)
    found = (ours[0] * 255).permute(1, 2, 0).numpy()
    assert np.abs(found - np.asarray(theirs, dtype=float)).max() < 1.6


def test_sharpness_agrees_with_pillow_inside() -> None:
    grey = (pictures(1) * 255).round()
    ours = KINDS["sharpness"](grey / 255, torch.ones(1), torch.ones(1))[0] * 255
    image = Image.fromarray(grey[0].permute(1, 2, 0).to(torch.uint8).numpy())
    theirs = np.asarray(ImageEnhance.Sharpness(image).enhance(1.9), dtype=float)
    gap = np.abs(ours.permute(1, 2, 0).numpy() - theirs)[1:-1, 1:-1]
    assert gap.max() < 2.5


def test_zero_magnitude_and_zero_chance_change_little() -> None:
    pixels = pictures()
    unchanged = randaugment(pixels, torch.Generator().manual_seed(1), chance=0.0)
    assert torch.equal(unchanged, pixels)


@pytest.mark.parametrize("name", list(KINDS))
def test_every_kind_stays_in_the_box(name: str) -> None:
    out = KINDS[name](pictures(), torch.full((6,), 0.9), torch.ones(6))
    assert out.shape == (6, 3, 16, 16)
    assert float(out.min()) >= 0
    assert float(out.max()) <= 1


def test_a_seed_fixes_the_draws() -> None:
    runs = [augment(pictures(), ("randaugment",), torch.Generator().manual_seed(4)) for _ in "ab"]
    assert torch.equal(*runs)
    assert not torch.equal(runs[0], pictures())
