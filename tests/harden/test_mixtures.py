"""PixMix, its fractals and DeepAugment: mixing by hand, a known attractor, a disturbed decoder."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from PIL import Image

from pico import make_classifier, make_dataset
from stockpot.errors import BadParameterError
from stockpot.harden.augmentation.deep_augment import Disturbed, Drawn, deep_augment
from stockpot.harden.augmentation.fractals import attractor, fractals
from stockpot.harden.augmentation.pixmix import PixMix, added, multiplied, pixmix, shares
from stockpot.harden.record import hardening_record
from stockpot.models.classifier import Classifier


def generator(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def model(size: int = 16) -> Classifier:
    flat = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * size * size, 4))
    return make_classifier(flat, size=size)


def pictures(n: int = 64) -> torch.Tensor:
    return torch.rand(n, 3, 16, 16, generator=generator())


def test_sums_and_products_by_hand() -> None:
    image, other = torch.tensor([0.6, 0.0, 1.0]), torch.tensor([0.2, 1.0, 0.5])
    a, b = torch.tensor(0.75), torch.tensor(0.25)
    # From mid-grey: 0.75 x 0.2 + 0.25 x -0.6 = 0, which is mid-grey again; and so on.
    torch.testing.assert_close(added(image, other, a, b), torch.tensor([0.5, 0.25, 0.875]))
    products = torch.tensor([1.2**0.75 * 0.4**0.25 / 2, 0.0, 2**0.75 / 2])
    torch.testing.assert_close(multiplied(image, other, a, b), products)
    # A negative share of black is a very bright partner, not infinity.
    bright = multiplied(torch.tensor(0.5), torch.tensor(0.0), torch.tensor(1.0), torch.tensor(-0.5))
    assert math.isfinite(float(bright))


def test_shares_have_the_means_of_their_beta_distributions() -> None:
    a, b = shares(40_000, 3.0, generator())
    both = b > 0
    assert float(both.double().mean()) == pytest.approx(0.5, abs=0.01)
    assert float(a[both].mean()) == pytest.approx(3 / 4, abs=0.01)
    assert float(b[both].mean()) == pytest.approx(1 / 4, abs=0.01)
    assert float(a[~both].mean()) == pytest.approx(1 + 1 / 4, abs=0.01)
    assert float(b[~both].mean()) == pytest.approx(-1 / 4, abs=0.01)


def test_half_the_images_stay_without_rounds_and_fewer_with_them() -> None:
    def untouched(rounds: int) -> float:
        method = pixmix(rounds=rounds, count=4)
        assert isinstance(method, PixMix)
        method.begin(model(), make_dataset(8), None)
        pixels = pictures(400)
        mixed = method.mixture(pixels, generator())
        assert float(mixed.min()) >= 0
        assert float(mixed.max()) <= 1
        return float((mixed == pixels).all(dim=(1, 2, 3)).double().mean())

    # Half are changed at first, some of them by a change that does nothing to them.
    assert untouched(0) == pytest.approx(0.5, abs=0.1)
    assert untouched(4) < 0.2  # a fifth draw no round, of which half were changed


def test_another_mixing_set_is_recorded_and_seen(
    pico_vit: Path, toy_file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "mix"
    for name, colour in (("a", 10), ("b", 250)):
        (folder / name).mkdir(parents=True)
        for index in range(4):
            Image.new("RGB", (20, 20), (colour, index, 0)).save(folder / name / f"{index}.png")
    method = pixmix(rounds=3, pictures=str(folder))
    assert isinstance(method, PixMix)
    method.begin(model(), make_dataset(8), None)
    assert set(method._others(9, generator()).mul(255).round()[:, 0].unique().tolist()) <= {10, 250}
    assert method.mixture(pictures(9), generator()).shape == (9, 3, 16, 16)
    with_set = hardening_record("pixmix", pico_vit, toy_file, pictures=str(folder))
    assert [one.role for one in with_set.inputs if one.role == "pictures"] == ["pictures"]
    before = with_set.digest
    Image.new("RGB", (20, 20), (11, 0, 0)).save(folder / "a" / "0.png")
    again = hardening_record("pixmix", pico_vit, toy_file, pictures=str(folder))
    assert again.digest != before


def test_the_attractor_of_three_halvings_is_sierpinski_s() -> None:
    corners = torch.tensor([[0.0, 0.0], [0.5, 0.0], [0.0, 0.5]])
    points, colours = attractor(
        torch.eye(2).expand(3, 2, 2) / 2, corners, torch.eye(3), torch.ones(3), generator()
    )
    # In this triangle no place has the same binary digit 1 in both coordinates (after the jumps
    # that bring a point there, to as many digits).
    digits = (points * 2**10).long()
    assert not (digits[:, 0] & digits[:, 1]).any()
    assert len(digits.unique(dim=0)) > 5000
    torch.testing.assert_close(colours.sum(dim=1), torch.ones(len(colours)), atol=1e-3, rtol=0)


def test_fractals_are_the_same_everywhere_and_differ_from_one_another() -> None:
    made = fractals(6, 24)
    assert torch.equal(made, fractals(6, 24))
    assert 0 <= float(made.min()) <= float(made.max()) <= 1
    for picture in made:
        assert float(picture.std()) > 0.02  # something is there
    gaps = (made[:, None] - made[None]).abs().mean(dim=(2, 3, 4))
    assert float(gaps[~torch.eye(6, dtype=torch.bool)].min()) > 0.02


def test_an_undisturbed_decoder_reconstructs_and_a_disturbed_one_does_not() -> None:
    still, shaken = deep_augment(channels=0.0, strength=0.0), deep_augment()
    assert isinstance(still, Disturbed)
    assert isinstance(shaken, Disturbed)
    pixels = pictures(4)

    def drawn() -> Drawn:
        return Drawn(4, torch.arange(4), generator())

    for method in (still, shaken):
        method.begin(model(), make_dataset(8), None)
    plain = still.autoencoder.reconstruct(pixels)
    torch.testing.assert_close(still.decoded(pixels, drawn()), plain)
    moved = (shaken.decoded(pixels, drawn()) - plain).abs().amax(dim=(1, 2, 3))
    assert float(moved.max()) > 0.05
    # Nothing of it stays: the hooks are gone.
    torch.testing.assert_close(shaken.autoencoder.reconstruct(pixels), plain)


def test_stronger_than_published_changes_are_refused() -> None:
    with pytest.raises(BadParameterError, match="severity: expected above 0, up to 10, got 11"):
        pixmix(severity=11.0)
