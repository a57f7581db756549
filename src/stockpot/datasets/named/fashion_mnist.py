"""Fashion-MNIST: 70,000 pictures of clothes, 28 px (Xiao, Rasul and Vollgraf, arXiv:1708.07747)."""

from __future__ import annotations

from pathlib import Path

from stockpot.datasets import datasets
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.fetch.debian import DebianPackage
from stockpot.datasets.fetch.hub import HubFiles
from stockpot.datasets.idx import read_idx
from stockpot.datasets.named.decoded import Part
from stockpot.datasets.named.definition import NamedSet, NamedSplit, Offer
from stockpot.datasets.named.parquet import decode_equal
from stockpot.datasets.words.conventions import fusionbench_words

CLASSES = (
    *("t-shirt", "trousers", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)


def _from_folder(folder: Path) -> dict[str, Part]:
    return {
        split: Part(
            read_idx(folder / f"{stem}-images-idx3-ubyte.gz")[:, None],
            read_idx(folder / f"{stem}-labels-idx1-ubyte.gz"),
        )
        for split, stem in (("train", "train"), ("test", "t10k"))
    }


def _from_parquet(folder: Path) -> dict[str, Part]:
    parts = (decode_equal(folder / name, "image", "label", "L") for name in HUB.files)
    return dict(zip(("train", "test"), parts, strict=True))


HUB = HubFiles(
    "zalando-datasets/fashion_mnist",
    (
        "fashion_mnist/train-00000-of-00001.parquet",
        "fashion_mnist/test-00000-of-00001.parquet",
    ),
)

FASHION_MNIST = NamedSet(
    name="fashion_mnist",
    classes=CLASSES,
    counts={"train": 60_000, "test": 10_000},
    fingerprints={
        "train": "ab6b7aac52d348f20e5e031a828e4287dcbbd6c348edb70773521be1643f0b44",
        "test": "a93713b1854d8cfea3a822697f5cd52bbbab5c433ccc72449e278ab870409da6",
    },
    licence="MIT",
    templates=("a photo of a {}.", "a greyscale picture of a {}."),
    words=fusionbench_words("fashion_mnist"),
    offers=(
        Offer(HUB, _from_parquet),
        Offer(
            DebianPackage(
                "dataset-fashion-mnist",
                "0.0~git20200523.55506a9-1",
                "39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
                30_900_652,
                inside="usr/share/datasets/fashion-mnist",
            ),
            _from_folder,
        ),
    ),
)


@datasets.register("fashion_mnist", paper="arXiv:1708.07747")
def fashion_mnist(*, split: NamedSplit = "test") -> Dataset:
    """Fashion-MNIST: clothes of 28 px in ten classes, 60,000 + 10,000.

    Args:
        split: train or test; val, the last 1000 of train, or fit, train without them.
    """
    return FASHION_MNIST.load(split)
