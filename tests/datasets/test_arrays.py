"""Arrays: idx files against hand-written bytes; every layout gives the same pictures."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from pico import make_dataset
from stockpot.datasets.arrays import arrays, as_pictures
from stockpot.datasets.idx import parse_idx, read_idx
from stockpot.datasets.load import load_dataset
from stockpot.errors import BadDataError, BadParameterError

IMAGES = bytes.fromhex("00000803 00000002 00000002 00000003 000102030405 0a0b0c0d0e0f")
LABELS = bytes.fromhex("00000801 00000002 0301")


def test_idx_against_hand_written_bytes(tmp_path: Path) -> None:
    values = parse_idx(IMAGES, "it")
    assert values.tolist() == [[[0, 1, 2], [3, 4, 5]], [[10, 11, 12], [13, 14, 15]]]
    assert parse_idx(LABELS, "it").tolist() == [3, 1]
    packed = tmp_path / "x-idx3-ubyte.gz"
    packed.write_bytes(gzip.compress(IMAGES))
    assert torch.equal(read_idx(packed), values)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "two zero bytes"),
        (b"PK\x03\x04", "two zero bytes"),
        (bytes.fromhex("00000d01 00000001 00000000"), "type 0x0d"),
        (IMAGES[:6], "cut short"),
        (IMAGES[:-1], "expected 12 bytes for 2 x 2 x 3, got 11"),
    ],
)
def test_wrong_idx_files_are_explained(data: bytes, message: str) -> None:
    with pytest.raises(BadDataError, match=message):
        parse_idx(data, "it")


def test_idx_pictures_with_their_labels(tmp_path: Path) -> None:
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(IMAGES)
    with pytest.raises(BadDataError, match="t10k-labels-idx1-ubyte, which is not there"):
        arrays(path=str(tmp_path / "t10k-images-idx3-ubyte"))
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(LABELS)
    data = load_dataset(str(tmp_path / "t10k-images-idx3-ubyte"))
    assert data.labels.tolist() == [3, 1]
    assert data.classes == ("0", "1", "2", "3")
    pixels = next(data.batches(2)).images
    assert pixels[1, :, 1, 2].tolist() == [15, 15, 15]


def test_every_layout_gives_the_same_pictures() -> None:
    nchw = torch.randint(0, 256, (4, 3, 5, 6), dtype=torch.uint8)
    assert torch.equal(as_pictures(nchw, "it"), nchw)
    assert torch.equal(as_pictures(nchw.permute(0, 2, 3, 1), "it"), nchw)
    assert torch.equal(as_pictures(nchw.float() / 255, "it"), nchw)
    assert torch.equal(as_pictures(nchw.double() / 255, "it"), nchw)
    grey = nchw[:, :1]
    for layout in (grey, grey[:, 0], grey.permute(0, 2, 3, 1)):
        assert torch.equal(as_pictures(layout, "it"), grey.repeat(1, 3, 1, 1))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (torch.zeros(4, 5), "got 4 x 5"),
        (torch.zeros(4, 2, 5, 5), "1 or 3 channels"),
        (torch.full((1, 3, 2, 2), -0.5), r"float images in \[0, 1\]"),
        (torch.full((1, 3, 2, 2), float("nan")), r"float images in \[0, 1\]"),
        (torch.zeros(1, 3, 2, 2, dtype=torch.int64), "uint8 or float"),
    ],
)
def test_wrong_arrays_are_explained(values: torch.Tensor, message: str) -> None:
    with pytest.raises(BadDataError, match=message):
        as_pictures(values, "it")


def test_npz_and_safetensors_agree(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 4, 4, 3), dtype=np.uint8)
    labels = np.array([0, 1, 2, 0, 1, 2])
    np.savez(
        tmp_path / "a.npz", x_train=pixels[:2], y_train=labels[:2], X_test=pixels, y_test=labels
    )
    save_file(
        {"images": torch.from_numpy(pixels), "labels": torch.from_numpy(labels)},
        tmp_path / "a.safetensors",
    )
    first = load_dataset(str(tmp_path / "a.npz"), split="test", classes=["r", "g", "b"])
    second = load_dataset(str(tmp_path / "a.safetensors"), classes=["r", "g", "b"])
    assert first.fingerprint == second.fingerprint
    assert len(load_dataset(str(tmp_path / "a.npz"), split="train")) == 2
    assert load_dataset(str(tmp_path / "a.npz"), images="x_train", labels="y_train").classes == (
        "0",
        "1",
    )
    with pytest.raises(BadDataError, match=r"no array of images named 'pics'.*x_train"):
        load_dataset(str(tmp_path / "a.npz"), images="pics")
    changed = pixels.copy()
    changed[5, 3, 3, 2] ^= 1
    np.savez(tmp_path / "b.npz", images=changed, labels=labels)
    third = load_dataset(str(tmp_path / "b.npz"), classes=["r", "g", "b"])
    assert third.fingerprint != first.fingerprint


def test_pickled_arrays_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=np.array([{}], dtype=object), labels=np.array([0]))
    with pytest.raises(BadDataError, match="cannot be read"):
        load_dataset(str(tmp_path / "a.npz"))


@pytest.mark.parametrize("kind", ["npz", "parquet"])
def test_data_without_images_is_refused(tmp_path: Path, kind: str) -> None:
    file = tmp_path / f"none.{kind}"
    if kind == "npz":
        np.savez(file, images=np.zeros((0, 8, 8, 3), np.uint8), labels=np.zeros(0, int))
    else:
        columns = {"image": pa.array([], pa.binary()), "label": pa.array([], pa.int64())}
        pq.write_table(pa.table(columns), file)
    with pytest.raises(BadDataError, match="no image is there"):
        load_dataset(file)


@pytest.mark.parametrize("limit", [0, -1, 1.5, "5", "many"])
def test_a_limit_is_a_number_of_images(limit: Any) -> None:
    with pytest.raises(BadParameterError, match="limit: expected at least 1 image, got"):
        make_dataset(8).limited(limit)
    assert len(make_dataset(8).limited(np.int64(3))) == 3  # type: ignore[arg-type]
