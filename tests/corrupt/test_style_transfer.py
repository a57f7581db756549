"""Style transfer: statistics taken over, and what stays."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from corruption_pictures import photographs
from PIL import Image

from stockpot.corrupt.apply import corrupt
from stockpot.corrupt.style.features import Haar, features_of
from stockpot.corrupt.style.style_transfer import restyle, take_over
from stockpot.errors import UserError

CPU = torch.device("cpu")


def test_statistics_are_taken_over_a_share_of_the_way() -> None:
    """The definition: the mean moves by the share; wholly transferred, mean and spread agree."""
    generator = torch.Generator().manual_seed(0)
    content = torch.randn(2, 5, 8, 8, generator=generator) * 3 + 7
    mean, spread = torch.rand(2, 2, 5, generator=generator)
    whole = take_over(content, mean, spread, 1)
    assert torch.allclose(whole.mean((2, 3)), mean, atol=1e-5)
    assert torch.allclose(whole.std((2, 3), correction=0), spread, atol=1e-5)
    half = take_over(content, mean, spread, 0.5)
    assert torch.allclose(half, (content + whole) / 2, atol=1e-5)


def test_haar_comes_back() -> None:
    pixels = photographs(32, 48).float()
    assert torch.allclose(Haar().decode(Haar().encode(pixels)), pixels, atol=1e-3)
    assert (
        Haar().encode(torch.full((1, 3, 4, 4), 9.0))[0, :, 0, 0].tolist() == [9.0] * 3 + [0.0] * 9
    )


@pytest.mark.parametrize("features", ["haar", "small-vqgan"])
def test_a_share_of_nothing_changes_nothing(features: str) -> None:
    pixels = photographs(32, 32)[:1]
    space = features_of(features, CPU)
    found = space.encode(pixels.float())
    statistics = torch.zeros(1, found.shape[1]), torch.ones(1, found.shape[1])
    assert torch.equal(restyle(pixels, space, *statistics, 0), pixels)


def test_the_colours_of_a_style_arrive_and_the_layout_stays(tmp_path: Path) -> None:
    (tmp_path / "red").mkdir()
    Image.new("RGB", (40, 40), (200, 40, 40)).save(tmp_path / "red" / "one.png")
    pixels = photographs(64, 64)
    plain = corrupt(pixels, "style_transfer", 5, styles=str(tmp_path))
    assert (plain.float().mean((2, 3)) - torch.tensor([200.0, 40.0, 40.0])).abs().max() < 0.6
    learned = corrupt(pixels[:1], "style_transfer", 3, styles=str(tmp_path), features="small-vqgan")
    before, after = (each[:1].float().mean((2, 3))[0] for each in (pixels, learned))
    assert after[0] - after[1] > before[0] - before[1] + 20, "redder, by an autoencoder's features"
    greys = [each[0].float().mean(0).flatten() for each in (pixels, learned)]
    assert torch.corrcoef(torch.stack(greys))[0, 1] > 0.5


def test_unknown_features_are_named() -> None:
    with pytest.raises(UserError, match="small-vqgaan"):
        corrupt(photographs(32, 32), "style_transfer", 1, features="small-vqgaan")
