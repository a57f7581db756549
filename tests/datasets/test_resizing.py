"""Pictures are resized along their rows first, whatever Pillow does, and only what is kept."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from stockpot.datasets.stream.geometry import Geometry, published_crop
from stockpot.datasets.stream.resizing import resize
from stockpot.types import ImageSize

BITS = 22
"""Of the weights, as Pillow rounds them."""
FILTERS = {
    Image.Resampling.BOX: (0.5, lambda x: ((x > -0.5) & (x <= 0.5)).astype(float)),
    Image.Resampling.BILINEAR: (1.0, lambda x: np.maximum(1 - np.abs(x), 0)),
    Image.Resampling.BICUBIC: (2.0, lambda x: cubic(np.abs(x))),
    Image.Resampling.LANCZOS: (3.0, lambda x: np.sinc(x) * np.sinc(x / 3) * (np.abs(x) < 3)),
}


def cubic(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Keys' kernel with a slope of -1/2."""
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def along(
    pixels: NDArray[np.uint8], axis: int, made: int, code: Image.Resampling
) -> NDArray[np.uint8]:
    """One direction by the formula: weights around the centre of what each new pixel covers."""
    given = pixels.shape[axis]
    scale = given / made
    reach, kernel = FILTERS[code]
    wide = max(scale, 1.0)
    centres = (np.arange(made) + 0.5) * scale
    places = np.arange(given)[None]
    weights = kernel((places - centres[:, None] + 0.5) * (1 / wide))
    first = (centres - reach * wide + 0.5).astype(int)[:, None]
    end = (centres + reach * wide + 0.5).astype(int)[:, None]
    weights = weights * ((places >= first) & (places < end))
    whole = np.rint(weights / weights.sum(1, keepdims=True) * 2**BITS).astype(np.int64)
    sums = np.moveaxis(np.tensordot(whole, pixels.astype(np.int64), (1, axis)), 0, axis)
    return np.clip((sums + 2 ** (BITS - 1)) >> BITS, 0, 255).astype(np.uint8)


def same(picture: Image.Image, other: Image.Image | NDArray[np.uint8]) -> bool:
    return np.array_equal(np.asarray(picture), np.asarray(other))


def noise(height: int, width: int, seed: int = 0) -> Image.Image:
    generator = np.random.default_rng(seed)
    return Image.fromarray(generator.integers(0, 256, (height, width, 3), dtype=np.uint8))


@pytest.mark.parametrize("code", FILTERS)
@pytest.mark.parametrize(
    ("given", "target"),
    [
        ((375, 500), (224, 224)),
        ((400, 300), (224, 224)),  # much taller than wide: Pillow 13 begins with the columns
        ((449, 228), (256, 254)),
        ((90, 100), (150, 200)),
        ((224, 256), (224, 224)),
    ],
)
def test_rows_come_first(
    given: tuple[int, int], target: tuple[int, int], code: Image.Resampling
) -> None:
    picture = noise(*given)
    expected = np.asarray(picture)
    for axis in (1, 0):
        if given[axis] != target[axis]:
            expected = along(expected, axis, target[axis], code)
    found = np.asarray(resize(picture, ImageSize(*target), code))
    assert np.array_equal(found, expected)


def test_a_vit_and_the_published_crops_see_rows_first_too() -> None:
    picture = noise(500, 333)
    square = ImageSize(224, 224)
    bilinear, bicubic = Image.Resampling.BILINEAR, Image.Resampling.BICUBIC
    by_formula = along(along(np.asarray(picture), 1, 224, bicubic), 0, 224, bicubic)
    assert same(Geometry(square, square, "bicubic").fit(picture), by_formula)
    tiny = along(along(np.asarray(picture), 1, 64, bilinear), 0, 64, bilinear)
    assert same(published_crop(picture, 64), tiny)
    share = np.asarray(picture)[32 : 32 + 437, 21 : 21 + 291]
    inception = along(along(share, 1, 299, bilinear), 0, 299, bilinear)
    assert same(published_crop(picture, 299), inception)
    cut = along(along(np.asarray(picture), 1, 256, bilinear), 0, int(256 * 500 / 333), bilinear)
    assert same(published_crop(picture, 224), cut[80 : 80 + 224, 16 : 16 + 224])


def test_a_part_is_that_of_the_whole() -> None:
    generator = np.random.default_rng(3)
    kept_exactly = 0
    for seed in range(400):
        height, width = generator.integers(1, 300, 2).tolist()
        target = ImageSize(
            *(int(generator.choice([64, 128, 256, side, 224, 97])) for side in (height, width))
        )
        left, right = sorted(generator.choice(target.width + 1, 2, replace=False).tolist())
        top, bottom = sorted(generator.choice(target.height + 1, 2, replace=False).tolist())
        part = (left, top, right, bottom)
        kind = "L" if seed % 5 == 0 else "RGB"
        picture = noise(height, width, seed).convert(kind)
        code = Image.Resampling(int(generator.integers(0, 6)))
        whole = resize(picture, target, code)
        found = resize(picture, target, code, part)
        assert found.size == (right - left, bottom - top)
        assert same(found, whole.crop(part)), (height, width, target, part, code)
        kept_exactly += target.height in (64, 128, 256)
    assert kept_exactly > 100


def test_what_lies_beyond_is_black_and_other_kinds_of_pictures_are_resized_too() -> None:
    picture = noise(30, 40)
    target, part = ImageSize(15, 20), (-2, -3, 22, 18)
    found = np.asarray(resize(picture, target, Image.Resampling.BICUBIC, part))
    inner = np.asarray(resize(picture, target, Image.Resampling.BICUBIC))
    assert found.shape == (21, 24, 3)
    assert np.array_equal(found[3:18, 2:22], inner)
    assert not found[:3].any()
    assert not found[:, [0, 1, 22, 23]].any()
    for mode in ("RGBA", "F", "I;16"):
        other = picture.convert("L").convert(mode) if mode != "I;16" else Image.new(mode, (40, 30))
        assert resize(other, target, Image.Resampling.BICUBIC, (1, 1, 9, 9)).size == (8, 8)
        assert resize(other, target, Image.Resampling.NEAREST).size == (20, 15)
