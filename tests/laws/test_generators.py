"""Laws of every generator. A new generator needs a row here, or the first test fails."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F

from stockpot.dynamic.generator import Generator, into_box
from stockpot.dynamic.generators import generators
from stockpot.dynamic.generators.warp import _spline
from stockpot.dynamic.task import Rules, Task
from stockpot.models.autoencoder.coders import Architecture
from stockpot.models.autoencoder.files import save_autoencoder
from stockpot.models.autoencoder.model import Autoencoder


@cache
def written(codes: int) -> TemporaryDirectory[str]:
    """A tiny autoencoder on disk, as long as the tests run."""
    folder = TemporaryDirectory(prefix="stockpot-test-")
    shape = Architecture(channels=8, multipliers=(1, 1), groups=4, code_size=3, codes=codes)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        save_autoencoder(Autoencoder(shape), Path(folder.name))
    return folder


def autoencoder(codes: int) -> str:
    return written(codes).name


class Row(NamedTuple):
    """A generator, its parameters, and whether it gives an image back exactly at the start."""

    name: str
    params: dict[str, Any]
    exact: bool


def rows() -> list[Row]:
    return [
        Row("vqgan", {"autoencoder": autoencoder(32)}, False),
        Row("kl", {"autoencoder": autoencoder(0)}, False),
        Row("style", {"autoencoder": autoencoder(0)}, False),
        Row("colour", {}, True),
        Row("warp", {}, True),
        Row("frequency", {}, True),
        Row("mixture", {"corruptions": ("contrast", "gaussian_noise")}, True),
    ]


every = pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)


def make(row: Row) -> Generator:
    made: Generator = generators.get(row.name)(**row.params)
    return made


def pictures(count: int = 3, height: int = 16, width: int = 20) -> torch.Tensor:
    return torch.rand(count, 3, height, width, generator=torch.Generator().manual_seed(5))


def test_every_generator_has_a_row() -> None:
    assert sorted(row.name for row in rows()) == generators.names()


@every
def test_it_starts_at_the_image(row: Row) -> None:
    generator, pixels = make(row), pictures()
    encoded = generator.encode(pixels, torch.arange(3))
    made = generator.decode(*encoded)
    assert made.shape == pixels.shape
    if row.exact:
        assert torch.allclose(made, pixels, atol=2e-5)


@every
@pytest.mark.parametrize("clamp", ["straight", "hard"])
def test_pixels_stay_in_range_wherever_the_latents_are(row: Row, clamp: Any) -> None:
    generator, pixels = make(row), pictures()
    latents, context = generator.encode(pixels, torch.arange(3))
    far = generator.clamp(latents + 50 * torch.randn_like(latents))
    made = into_box(generator.decode(far, context), clamp)
    assert torch.isfinite(made).all()
    assert made.min() >= 0
    assert made.max() <= 1
    assert torch.equal(generator.clamp(far), far)


def test_the_gradient_passes_or_stops_at_the_border() -> None:
    for clamp, expected in (("straight", [1.0, 1.0, 1.0]), ("hard", [0.0, 1.0, 0.0])):
        pixels = torch.tensor([-0.5, 0.5, 1.5], requires_grad=True)
        into_box(pixels, clamp).sum().backward()
        assert pixels.grad.tolist() == expected


@every
def test_a_gradient_reaches_the_latents(row: Row) -> None:
    generator, pixels = make(row), pictures()
    latents, context = generator.encode(pixels, torch.arange(3))
    latents = latents.detach().requires_grad_(True)
    generator.decode(latents, context)[:, :, 2:7, 3:9].square().sum().backward()
    assert torch.isfinite(latents.grad).all()
    assert (latents.grad.flatten(1).abs().amax(dim=1) > 0).all()


@pytest.mark.parametrize(
    "row", [row for row in rows() if row.name != "vqgan"], ids=lambda row: row.name
)
def test_a_small_step_along_the_gradient_raises_what_it_is_the_gradient_of(row: Row) -> None:
    # A codebook makes steps of its own; the others are smooth enough for a first-order check.
    generator, pixels = make(row), pictures()
    latents, context = generator.encode(pixels, torch.arange(3))
    latents = latents.detach().requires_grad_(True)
    target = pictures(6)[3:]
    before = -(generator.decode(latents, context) - target).square().sum(dim=(1, 2, 3))
    (gradient,) = torch.autograd.grad(before.sum(), latents)
    size = gradient.flatten(1).norm(dim=1).view(-1, *[1] * (gradient.ndim - 1))
    moved = generator.clamp(latents + 1e-3 * gradient / size.clamp_min(1e-9))
    after = -(generator.decode(moved, context) - target).square().sum(dim=(1, 2, 3))
    assert (after >= before - 1e-5).all()


@every
def test_an_image_is_encoded_and_decoded_alone_as_in_company(row: Row) -> None:
    generator, pixels = make(row), pictures()
    seeds = torch.tensor([4, 8, 15])
    whole = generator.decode(*generator.encode(pixels, seeds))
    alone = generator.decode(*generator.encode(pixels[1:2], seeds[1:2]))
    assert torch.allclose(whole[1:2], alone, atol=1e-5)


@every
def test_codes_belong_to_quantised_latents_only(row: Row) -> None:
    generator = make(row)
    latents, _ = generator.encode(pictures(), torch.arange(3))
    codes = generator.codes(latents)
    settled = generator.settled(latents)
    assert (codes is not None) == (row.name == "vqgan")
    if codes is not None:
        assert torch.equal(generator.codes(settled), codes)
    else:
        assert torch.equal(settled, latents)


def test_the_elastic_field_is_the_bicubic_one() -> None:
    units = torch.randn(3, 2, 5, 5, generator=torch.Generator().manual_seed(0))
    wanted = F.interpolate(units, size=(7, 12), mode="bicubic", align_corners=True)
    found = units.flatten(2) @ _spline(5, 7, 12, torch.device("cpu"))
    assert torch.allclose(found.view(wanted.shape), wanted, atol=1e-6)


@pytest.mark.parametrize("name", ["colour", "warp", "frequency", "mixture"])
def test_what_has_no_network_is_exact_in_mixed_precision(name: str) -> None:
    generator = generators.get(name)()
    pixels = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(2))
    seeds = torch.arange(2)
    found = []
    for precision in ("fp32", "bf16"):
        task = Task(lambda images: images, generator, None, Rules(precision=precision))
        encoded = task.encode(pixels, seeds)
        found.append(task.decode(encoded.latents + 0.1, encoded.context))
    assert torch.equal(*found)
