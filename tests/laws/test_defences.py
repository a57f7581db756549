"""The laws that every defence obeys: one row per defence, one test per law.

A defence that is registered without a row here fails the suite.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from pico import CLASSES, make_classifier
from stockpot.defend import defences
from stockpot.defend.defended import Defended, defend


class Row(NamedTuple):
    """A defence, the views it makes, and what a gradient through it is."""

    name: str
    views: int = 1
    gradient: Literal["true", "partial"] = "true"
    """`true`: over a quarter of a grey level the defended model changes as its gradient says.
    `partial`: steps inside (levels, weights that are cut off) change it in ways that no gradient
    tells, so that an attack by gradients alone overrates the defence."""
    keeps_constant: bool = True
    """Whether a picture of one colour stays as it is."""
    params: dict[str, Any] = {}  # noqa: RUF012


ROWS = [
    Row("clahe", gradient="partial", keeps_constant=False),
    Row("nlm", gradient="partial"),
    Row("ten_crop", views=10, params={"crop": 0.875}),
]
every_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
SIZES = [(32, 32), (41, 35)]


class Smooth(nn.Module):
    """Logits that depend on every pixel."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.filters = nn.Parameter(torch.randn(4, 3, 5, 5, generator=generator) * 0.2)

    def forward(self, pixels: Tensor) -> Tensor:
        seen = nn.functional.conv2d(pixels, self.filters.to(pixels.dtype), padding=2)
        return seen.tanh().mean((2, 3))


def pictures(n: int = 3, size: tuple[int, int] = (32, 32)) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    coarse = torch.rand(n, 3, 5, 5, generator=generator)
    smooth = nn.functional.interpolate(coarse, size=size, mode="bilinear")
    return (smooth + 0.05 * torch.randn(n, 3, *size, generator=generator)).clamp(0, 1)


def defended(row: Row) -> Defended:
    model = defend(make_classifier(Smooth()), row.name, **row.params)
    assert isinstance(model, Defended)
    return model.eval()


def test_every_defence_has_a_row() -> None:
    # What adapts or votes over views changes no pixels; it has laws in tests/defend.
    rooms = {listing.name: listing.module.split(".")[2] for listing in defences.listings()}
    fixed = sorted(name for name, room in rooms.items() if room not in ("adapt", "episodic"))
    assert sorted(row.name for row in ROWS) == fixed


@every_row
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pixels_stay_pixels(row: Row, size: tuple[int, int], dtype: torch.dtype) -> None:
    pixels = pictures(size=size).to(dtype)
    kept = pixels.clone()
    seen = defended(row).change(pixels)
    assert torch.equal(pixels, kept)
    assert seen.dtype == dtype
    assert seen.device == pixels.device
    assert seen.shape[:2] == (row.views * len(pixels), 3)
    assert row.views > 1 or seen.shape == pixels.shape
    assert float(seen.min()) >= 0
    assert float(seen.max()) <= 1 + 1e-6
    with torch.no_grad():
        assert defended(row)(pixels).shape == (len(pixels), len(CLASSES))


@every_row
def test_the_same_pixels_get_the_same_answer_and_nothing_is_drawn(row: Row) -> None:
    pixels = pictures()
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = defended(row)(pixels)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(first, defended(row)(pixels))


@every_row
def test_no_picture_sees_its_neighbours(row: Row) -> None:
    pixels = pictures(4)
    model = defended(row)
    whole = model(pixels)
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(model(pixels[order]), whole[order], rtol=1e-5, atol=1e-6)
    for index in range(4):
        alone = model(pixels[index : index + 1])
        torch.testing.assert_close(alone, whole[index : index + 1], rtol=1e-5, atol=1e-6)


@every_row
def test_one_colour_has_nothing_to_mend(row: Row) -> None:
    grey = torch.full((1, 3, 32, 32), 0.4)
    seen = defended(row).change(grey)
    assert torch.allclose(seen, seen[..., :1, :1].expand_as(seen), atol=1e-6)
    assert bool(torch.allclose(seen, torch.full_like(seen, 0.4), atol=1e-6)) == row.keeps_constant


@every_row
def test_the_gradient_is_what_the_row_says(row: Row) -> None:
    """Against the difference quotient of the whole defended model, along random directions."""
    model = defended(row)
    pixels = (0.2 + 0.6 * pictures(1)).double().requires_grad_(True)
    (gradient,) = torch.autograd.grad(model(pixels)[0, 0], pixels)
    assert torch.isfinite(gradient).all()
    assert bool(gradient.any())
    generator = torch.Generator().manual_seed(5)
    errors = []
    for _ in range(4):
        way = torch.randn(pixels.shape, generator=generator, dtype=torch.float64)
        reach = 1e-3
        with torch.no_grad():
            there, back = model(pixels + reach * way), model(pixels - reach * way)
        slope = float((there - back)[0, 0]) / (2 * reach)
        told = float((gradient * way).sum())
        errors.append(abs(told - slope) / max(abs(told), abs(slope)))
    assert (sorted(errors)[2] < 0.1) == (row.gradient == "true"), errors
