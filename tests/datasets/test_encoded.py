"""Decoding: every kind of picture becomes the RGB pixels that its format defines."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from stockpot.datasets.encoded import EncodedImages
from stockpot.datasets.load import load_dataset
from stockpot.datasets.pictures import open_rgb
from stockpot.datasets.stream.file_check import inspect
from stockpot.errors import BadDataError


def encoded(picture: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)  # type: ignore[arg-type]
    return buffer.getvalue()


def noise(height: int = 5, width: int = 7, channels: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def test_rgb_grey_and_bilevel() -> None:
    pixels = noise()
    assert np.array_equal(np.asarray(open_rgb(encoded(Image.fromarray(pixels)))), pixels)
    grey = pixels[..., 0]
    back = np.asarray(open_rgb(encoded(Image.fromarray(grey))))
    assert np.array_equal(back, np.repeat(grey[..., None], 3, axis=2))
    dots = Image.fromarray(grey > 100)
    assert set(np.unique(open_rgb(encoded(dots)))) == {0, 255}


def test_palette_gives_its_colours() -> None:
    picture = Image.new("P", (2, 1))
    picture.putpalette([10, 20, 30, 200, 100, 50])
    picture.putpixel((1, 0), 1)
    assert np.asarray(open_rgb(encoded(picture))).tolist() == [[[10, 20, 30], [200, 100, 50]]]
    clear = np.asarray(open_rgb(encoded(picture, transparency=1))).tolist()
    assert clear == [[[10, 20, 30], [255, 255, 255]]]


def test_floats_and_wide_numbers_keep_their_grey() -> None:
    wanted = list(range(0, 256, 15))
    levels = np.array([wanted])
    for values in (
        levels.astype(np.float32),
        (levels / 255).astype(np.float32),  # Pillow alone makes these black
        levels.astype(np.int32),
        (levels * 257).astype(np.int32),
    ):
        back = np.asarray(open_rgb(encoded(Image.fromarray(values), "TIFF")))
        assert back[0, :, 0].tolist() == wanted


@pytest.mark.parametrize("value", [-1, 65536, 2**31 - 1, -0.5, 300.0, float("nan")])
def test_grey_beyond_what_is_known_is_refused(tmp_path: Path, value: float) -> None:
    grey = np.array([[0, value]], dtype=np.float32 if isinstance(value, float) else np.int32)
    file = tmp_path / "grey.tif"
    Image.fromarray(grey).save(file)
    images = EncodedImages((file,), (str(file),))
    with pytest.raises(BadDataError, match=r"grey\.tif cannot be decoded.*expected grey values"):
        next(images.batches(1, None))


def test_transparency_is_composited_on_white() -> None:
    pixels = noise(channels=4)
    back = np.asarray(open_rgb(encoded(Image.fromarray(pixels)))).astype(float)
    alpha = pixels[..., 3:].astype(float) / 255
    expected = alpha * pixels[..., :3] + (1 - alpha) * 255
    assert np.abs(back - expected).max() <= 1


def test_sixteen_bits_keep_their_upper_half() -> None:
    values = np.array([[0, 255, 256, 65535, 32768]], dtype=np.uint16)
    back = np.asarray(open_rgb(encoded(Image.fromarray(values))))
    assert back[0, :, 0].tolist() == [0, 0, 1, 255, 128]


def test_cmyk_becomes_rgb() -> None:
    picture = Image.new("CMYK", (16, 16), (0, 255, 255, 0))
    red = np.asarray(open_rgb(encoded(picture, "JPEG", quality=100))).mean((0, 1))
    assert red[0] > 240
    assert red[1:].max() < 15


def test_exif_orientation_is_honoured() -> None:
    pixels = noise(8, 16)
    exif = Image.Exif()
    exif[0x0112] = 6  # the top of the stored picture is its right side
    back = np.asarray(open_rgb(encoded(Image.fromarray(pixels), exif=exif)))
    assert np.array_equal(back, np.rot90(pixels, -1))


@pytest.mark.parametrize("count", [0, 1, 32, 33, 70])
@pytest.mark.parametrize("size", [1, 32, 50])
def test_batches_hold_every_picture_in_order(count: int, size: int) -> None:
    pixels = np.stack([noise(seed=seed) for seed in range(count)]) if count else np.empty((0,))
    images = EncodedImages(
        tuple(encoded(Image.fromarray(row)) for row in pixels), tuple(map(str, range(count)))
    )
    batches = list(images.batches(size, None))
    assert [len(batch) for batch in batches[:-1]] == [size] * (len(batches) - 1)
    if count:
        assert np.array_equal(torch.cat(batches).permute(0, 2, 3, 1).numpy(), pixels)
    else:
        assert batches == []


def test_fit_brings_pictures_to_one_size_and_without_it_sizes_must_agree() -> None:
    sizes = [(4, 4), (9, 5)]
    images = EncodedImages(
        tuple(encoded(Image.new("RGB", size, "red")) for size in sizes), ("a", "b")
    )
    fitted = torch.cat(list(images.batches(2, lambda picture: picture.resize((6, 3)))))
    assert tuple(fitted.shape) == (2, 3, 3, 6)
    with pytest.raises(BadDataError, match="one size in a batch, got 4x4, 5x9"):
        list(images.batches(2, None))


def test_taking_rows_and_leaving_early() -> None:
    rows = [encoded(Image.new("RGB", (2, 2), (value, 0, 0))) for value in range(200)]
    images = EncodedImages(tuple(rows), tuple(map(str, range(200))))
    assert torch.cat(list(images.take([7, 3, 7]).batches(2, None)))[:, 0, 0, 0].tolist() == [
        7,
        3,
        7,
    ]
    first = next(images.batches(10, None))
    assert first[:, 0, 0, 0].tolist() == list(range(10))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "BMP", "GIF"])
def test_a_cut_file_is_seen_and_a_whole_one_passes(kind: str, tmp_path: Path) -> None:
    whole = encoded(Image.fromarray(noise(64, 64)), kind)
    path = tmp_path / "picture"
    path.write_bytes(whole)
    cuts = [whole[: len(whole) * part // 10] for part in (0, 1, 5, 9)]
    seen = inspect([path, whole, *cuts, b"no picture at all", tmp_path / "missing"])
    assert sorted(seen.broken) == [2, 3, 4, 5, 6, 7]
    assert seen.digests[0] == seen.digests[1] != ""


def test_a_png_with_a_flipped_bit_is_seen() -> None:
    data = bytearray(encoded(Image.fromarray(noise(64, 64))))
    data[len(data) // 2] ^= 1
    assert list(inspect([bytes(data)]).broken) == [0]


def test_a_picture_that_breaks_later_is_named() -> None:
    images = EncodedImages((b"nonsense",), ("folder/name.png",))
    with pytest.raises(BadDataError, match=r"folder/name\.png cannot be decoded"):
        list(images.batches(1, None))


def test_every_class_has_pictures_and_every_picture_a_class() -> None:
    picture = Image.fromarray(noise())
    with pytest.raises(BadDataError, match="got none of dog"):
        load_dataset({"cat": [picture], "dog": []})
    with pytest.raises(BadDataError, match="a class for every picture"):
        load_dataset([(picture, "cat"), (picture, None)])  # type: ignore[list-item]
    assert load_dataset({"cat": [picture], "dog": [picture]}).classes == ("cat", "dog")
