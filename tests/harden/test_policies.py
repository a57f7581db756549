"""RandAugment and TrivialAugment: each change equals torchvision's, bit for bit."""

from __future__ import annotations

import hashlib

import pytest
import torch

from stockpot.harden.augment import augment
from stockpot.harden.augmentation.policies import (
    Kind,
    randaugment,
    randaugment_kinds,
    trivialaugment_kinds,
)

# Recorded from torchvision 0.28 (transforms.autoaugment, nearest): the sha256 of the bytes of two
# pictures at steps 3, 9 and 30, with both signs where there is one.
RANDAUGMENT = {
    "identity": "a4c6ef211da8",
    "shear_x": "c03204e2043f",
    "shear_y": "e3434090f1e7",
    "translate_x": "62244f731d29",
    "translate_y": "79db654b2142",
    "rotate": "560b76d0242b",
    "brightness": "13d9e55d08b9",
    "colour": "70db82b636e4",
    "contrast": "1e50815a9cda",
    "sharpness": "010ff31c6f2e",
    "posterize": "e1a05a2aabb4",
    "solarize": "56020782311c",
    "autocontrast": "a7bff4378206",
    "equalize": "de02e7d73c0b",
}
TRIVIALAUGMENT = RANDAUGMENT | {
    "shear_x": "8a62899f65a6",
    "shear_y": "c74b36249cd6",
    "translate_x": "36524b2df95e",
    "translate_y": "f34f2b0d8c6a",
    "rotate": "fa076096b369",
    "brightness": "06f8209d17e4",
    "colour": "4f989af6484f",
    "contrast": "aa6b70431cca",
    "sharpness": "96a15f4215a4",
    "posterize": "cecd45f0ba46",
}


def pictures() -> torch.Tensor:
    wave = torch.sin(torch.arange(2 * 3 * 17 * 24, dtype=torch.float64) * 0.37)
    made = (wave * 127.5 + 127.5).to(torch.uint8).view(2, 3, 17, 24)
    made[1] = made[1] // 2 + 20
    return made.float()


def digest(kind: Kind) -> str:
    made = [
        kind.change(pictures(), (kind.magnitudes[step] * sign).expand(2))
        for step in (3, 9, 30)
        for sign in ((1, -1) if kind.signed else (1,))
    ]
    return hashlib.sha256(torch.stack(made).to(torch.uint8).numpy().tobytes()).hexdigest()[:12]


@pytest.mark.parametrize(
    ("kinds", "recorded"),
    [(randaugment_kinds(17, 24), RANDAUGMENT), (trivialaugment_kinds(), TRIVIALAUGMENT)],
    ids=["randaugment", "trivialaugment"],
)
def test_every_change_is_torchvision_s(kinds: dict[str, Kind], recorded: dict[str, str]) -> None:
    assert {name: digest(kind) for name, kind in kinds.items()} == recorded


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["randaugment", "trivialaugment"])
def test_a_gpu_makes_the_same_pictures(name: str) -> None:
    pixels = (pictures()[:1] / 255).expand(60, -1, -1, -1)
    here = augment(pixels, (name,), torch.Generator().manual_seed(4))
    there = augment(pixels.cuda(), (name,), torch.Generator().manual_seed(4)).cpu()
    # In levels, as a GPU divides by 255 with another last bit. A pixel whose place lies on the
    # border of two may be either; there are few.
    levels = [(side * 255).round() for side in (here, there)]
    assert float((levels[0] != levels[1]).double().mean()) < 1e-3


@pytest.mark.parametrize("name", ["randaugment", "trivialaugment"])
def test_a_seed_fixes_the_draws_and_each_image_has_its_own(name: str) -> None:
    pixels = (pictures()[:1] / 255).expand(60, -1, -1, -1)
    first, again = (augment(pixels, (name,), torch.Generator().manual_seed(4)) for _ in "ab")
    assert torch.equal(first, again)
    assert len({image.numpy().tobytes() for image in first}) > 12
    assert 0 <= float(first.min()) <= float(first.max()) <= 1


def test_at_step_0_nothing_moves() -> None:
    pixels = pictures() / 255
    for name in ("shear_x", "translate_y", "rotate", "brightness", "sharpness", "posterize"):
        kind = randaugment_kinds(17, 24)[name]
        assert torch.equal(kind.change(pictures(), kind.magnitudes[:1].expand(2)), pictures())
    assert torch.equal(randaugment(pixels, torch.Generator().manual_seed(1), layers=0), pixels)
