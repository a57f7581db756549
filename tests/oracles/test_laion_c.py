"""LAION-C against pixels that its authors' code made.

`data/laion_c.npz` holds, for the first 224 px picture of `corruptions.npz`, the vertical lines and
glitches of FanfeiLi/LAION-C (with `glitch-this` 1.0.3) at severities 1, 3 and 5, in part, with what
was drawn for the glitches; and how many pixels Pillow covers with the shapes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from stockpot.corrupt.apply import corrupt
from stockpot.corrupt.laion.glitched import glitch
from stockpot.corrupt.laion.luminance import light_squares
from stockpot.corrupt.laion.mosaic import put_together
from stockpot.corrupt.laion.pasted import draw_shapes, paste
from stockpot.corrupt.other_pictures import other_pictures
from stockpot.errors import UserError

DATA = Path(__file__).parent / "data"


def recorded() -> dict[str, NDArray[np.generic]]:
    with np.load(DATA / "laion_c.npz") as file:
        return {name: file[name] for name in file.files}


def photograph() -> Tensor:
    with np.load(DATA / "corruptions.npz") as file:
        return torch.from_numpy(file["images_224"][:1]).permute(0, 3, 1, 2).contiguous()


@pytest.mark.parametrize("severity", [1, 3, 5])
def test_vertical_lines_are_the_authors(severity: int) -> None:
    made = corrupt(photograph(), "vertical_lines", severity)[0].permute(1, 2, 0)
    expected = torch.from_numpy(recorded()[f"vertical_lines_{severity}"])
    assert torch.equal(made[1::7, 3::7], expected)


@pytest.mark.parametrize("severity", [1, 3, 5])
def test_glitches_are_the_authors(severity: int) -> None:
    known = recorded()
    start, stop, shift = torch.from_numpy(known[f"glitched_{severity}__drawn"])[:, None]
    channel, down, right = torch.from_numpy(known[f"glitched_{severity}__colour"])[:, None]
    made = glitch(photograph(), start, stop, shift, channel, down, right)[0].permute(1, 2, 0)
    expected = torch.from_numpy(known[f"glitched_{severity}"])
    assert torch.equal(made[:, 2::9][1::2][::4], expected)
    assert not made[::2].any(), "every other row is black"


def test_shapes_cover_what_pillow_covers() -> None:
    """Each kind of shape over all sizes and turns, and a whole picture of them."""
    known = recorded()
    sizes, turns = torch.meshgrid(torch.arange(6, 16), torch.arange(0, 72, 9), indexing="ij")
    many = sizes.numel()
    black = torch.zeros(many, 3, 64, 64, dtype=torch.uint8)
    place = torch.full((many, 1), 30)
    for kind, expected in enumerate(known["shape_pixels"]):
        made = draw_shapes(
            black,
            kind=torch.full((many, 1), kind),
            down=place,
            right=place,
            size=sizes.reshape(-1, 1),
            colour=torch.full((many, 1, 3), 255),
            degrees=turns.reshape(-1, 1),
        )
        assert float((made[:, 0] > 0).sum()) / many == pytest.approx(float(expected), rel=0.08)
    white = torch.full((2, 3, 224, 224), 255, dtype=torch.uint8)
    for severity, share in zip((1, 5), known["shape_shares"], strict=True):
        changed = (corrupt(white, "geometric_shapes", severity) != 255).any(1).float().mean()
        assert float(changed) == pytest.approx(float(share), abs=0.04)


def test_the_last_thing_pasted_is_seen() -> None:
    """By the definition: pasted one after the other."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (2, 3, 20, 24), generator=generator).to(torch.uint8)
    stickers = torch.randint(0, 256, (2, 9, 3, 5, 5), generator=generator).to(torch.uint8)
    down = torch.randint(0, 15, (2, 9), generator=generator)
    right = torch.randint(0, 19, (2, 9), generator=generator)
    expected = pixels.clone()
    for picture in range(2):
        for one, (row, column) in enumerate(zip(down[picture], right[picture], strict=True)):
            part = expected[picture, :, row : row + 5, column : column + 5]
            part.copy_(stickers[picture, one])
    assert torch.equal(paste(pixels, down, right, stickers), expected)


def test_squares_grow_lighter_and_darker_in_turn() -> None:
    grey = torch.full((1, 3, 28, 28), 100, dtype=torch.uint8)
    made = light_squares(grey, torch.tensor([[[10.0, 20.0], [30.0, 200.0]]]), 14)
    assert [int(made[0, 1, row, column]) for row in (3, 17) for column in (3, 17)] == [
        *(110, 80),
        *(70, 255),
    ]


def test_a_mosaic_takes_the_nearest_mean() -> None:
    pictures = torch.tensor([0.0, 90.0, 200.0])[:, None, None, None] + torch.zeros(3, 3, 4, 4)
    pictures[1, :, :2] += 20  # its mean is 100
    pixels = torch.cat([torch.full((1, 3, 8, 4), level) for level in (40, 60, 151, 149)], 3)
    made = put_together(pixels.to(torch.uint8), pictures)[0, 0]
    assert made[0].tolist() == [0] * 4 + [110] * 4 + [200] * 4 + [110] * 4
    assert made[3].tolist() == [0] * 4 + [90] * 4 + [200] * 4 + [90] * 4


def test_pictures_of_others_can_be_the_tiles(tmp_path: Path) -> None:
    from PIL import Image

    for name, colour in (("a", "red"), ("b", "blue")):
        (tmp_path / name).mkdir()
        Image.new("RGB", (70, 60), colour).save(tmp_path / name / "one.png")
    made = corrupt(photograph(), "mosaic", 5, tiles=str(tmp_path))
    colours = {tuple(pixel) for pixel in made[0].flatten(1).T.tolist()}
    assert colours == {(255, 0, 0), (0, 0, 255)}
    assert other_pictures("procedural", 8, torch.device("cpu")).shape == (1024, 3, 8, 8)
    with pytest.raises(UserError):
        corrupt(photograph(), "stickers", 1, tiles=str(tmp_path / "nowhere"))
