"""Corrupted pictures that already lie on disk, found again for the pictures of a clean dataset.

Pictures are matched by the names of their files; arrays by row, where the labels must agree. So a
limit or a list of files on the clean data takes the same pictures here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from torch import Tensor

from stockpot.datasets.arrays import as_pictures
from stockpot.datasets.corrupted.families import Family, family_of
from stockpot.datasets.corrupted.layout import LABELS, Place, find_corruptions, severity_folder
from stockpot.datasets.dataset import (
    ACCEPTED,
    Dataset,
    Images,
    TensorImages,
    limited_rows,
    pixel_fingerprint,
)
from stockpot.datasets.encoded import EncodedImages
from stockpot.datasets.label_map import LabelIndex
from stockpot.datasets.natural.layout import picture_names
from stockpot.datasets.stream.file_check import content_fingerprint, inspect, usable_rows
from stockpot.errors import BadDataError

LEVELS = 5


class CorruptionSet:
    """A folder of corrupted images that belongs to a clean dataset."""

    def __init__(self, folder: str | Path, clean: Dataset) -> None:
        self.folder = Path(folder).expanduser()
        self.clean = clean
        if not self.folder.is_dir():
            raise BadDataError(f"no folder of corrupted images at {self.folder}.")
        self.places = find_corruptions(self.folder)
        if not self.places:
            raise BadDataError(
                f"{self.folder} holds no corrupted images; expected corruption/severity/class/"
                "picture (ImageNet-C), corruption.npy (CIFAR-10-C) or corruption/test_images.npy "
                "(MNIST-C)."
            )
        self.graded = not any(place.kind == "pair" for place in self.places.values())

    @property
    def family(self) -> Family | None:
        """The published set that has corruptions of its own; none for ImageNet-C's."""
        return family_of(self.places, self.graded)

    @property
    def description(self) -> str:
        """Which layout the folder has."""
        kinds = {place.kind for place in self.places.values()}
        usual = "ImageNet-C" if "pictures" in kinds else "CIFAR-10-C"
        return f"{self.folder.name} ({self.family.name if self.family else usual} layout)"

    def load(self, corruption: str, severity: int) -> Dataset:
        """The images of one corruption and severity, with the clean dataset's classes."""
        if corruption not in self.places:
            raise BadDataError(
                f"{self.folder} has no {corruption}: neither {corruption}/{severity} nor "
                f"{corruption}.npy. It holds: {', '.join(sorted(self.places))}."
            )
        place, split = self.places[corruption], f"{corruption}-{severity}"
        if place.kind == "pictures":
            return self._pictures(severity_folder(place, severity), split)
        if place.kind == "array":
            return self._array(place, severity, split)
        return self._pair(place, split)

    def _pictures(self, folder: Path, split: str) -> Dataset:
        names = sorted(name for name in picture_names(folder) if "/" in name)
        if not names:
            raise BadDataError(f"{folder} holds no images in class folders.")
        # A name with a slash is written with another mark: no folder has one.
        number = LabelIndex([name.replace("/", "_") for name in self.clean.classes])
        labels = {name: number.of(name.split("/")[0], str(folder)) for name in names}
        chosen = self._same_files(folder, labels) or self._numbered(folder, labels)
        kept = chosen or names
        seen = inspect([folder / name for name in kept], folder)
        usable_rows(kept, seen.broken, "stop", str(folder))
        images = EncodedImages(tuple(folder / name for name in kept), tuple(kept))
        target = torch.tensor([labels[name] for name in kept])
        mark = content_fingerprint(kept, seen.digests, target, self.clean.classes)
        if chosen:
            return self._paired(images, split, mark)
        return self._unpaired(images, target, split, mark, f"{folder}: its folders")

    def _same_files(self, folder: Path, labels: dict[str, int]) -> list[str]:
        """The pictures of the clean data's files, in their order; none where it has no files."""
        files = self.clean.columns.get("file")
        if files is None:
            return []
        rows = self.clean.labels.tolist()
        alone = all(max(Counter(map(_last, each)).values()) == 1 for each in (labels, files))
        there = {(0 if alone else label, _last(name)): name for name, label in labels.items()}
        wanted: list[str | None] = []
        for row, (file, label) in enumerate(zip(files, rows, strict=True)):
            keys = [(0 if alone else label, name) for name in _written(file, row)]
            wanted.append(next((there[key] for key in keys if key in there), None))
        lacking = [file for name, file in zip(wanted, files, strict=True) if name is None]
        if lacking:
            raise BadDataError(
                f"{folder} lacks {len(lacking)} of the {len(files)} clean pictures, such as "
                f"{lacking[0]}.",
                hint="Give the clean data the pictures that are there: files=LIST or a limit.",
            )
        found = [name for name in wanted if name is not None]
        moved = [name for name, row in zip(found, rows, strict=True) if labels[name] != row]
        if moved and ACCEPTED not in self.clean.columns:
            raise BadDataError(
                f"{folder}: {moved[0]} lies in the folder of another class than in the clean data.",
                hint="Folders are WordNet ids or the clean data's class names.",
            )
        return found

    def _numbered(self, folder: Path, labels: dict[str, int]) -> list[str]:
        """Pictures that are named by their row; none where the names do not tell."""
        numbers = {int(_last(name)): name for name in labels if _last(name).isdigit()}
        if set(numbers) != set(range(len(labels))):
            return []
        ordered = [numbers[row] for row in range(len(labels))]
        target = torch.tensor([labels[name] for name in ordered])
        if len(target) == len(self.clean) and not torch.equal(target, self.clean.labels):
            return []  # counted in another order, class by class perhaps
        return [ordered[row] for row in self._rows(target, folder, "its folders")]

    def _array(self, place: Place, severity: int, split: str) -> Dataset:
        values = _read(place.path)
        if values.ndim != 4 or len(values) % LEVELS or not len(values):
            raise BadDataError(
                f"{place.path}: expected five severities of N x H x W x 3 one after the other, got "
                f"an array of {' x '.join(map(str, values.shape))}."
            )
        count = len(values) // LEVELS
        labels = _labels(place.path.with_name(f"{LABELS}.npy"), count, LEVELS)
        block = values[(severity - 1) * count : severity * count]
        return self._block(block, labels, place.path, f"{LABELS}.npy", split)

    def _pair(self, place: Place, split: str) -> Dataset:
        part = "train" if self.clean.split == "train" else "test"
        values = _read(place.path / f"{part}_images.npy")
        file = place.path / f"{part}_labels.npy"
        labels = _labels(file, len(values), 1)
        return self._block(values, labels, place.path, file.name, split)

    def _block(
        self, values: np.ndarray, labels: Tensor | None, where: Path, told: str, split: str
    ) -> Dataset:
        """The pictures of an array for the clean data's rows."""
        ordered = "file" not in self.clean.columns
        if labels is None and not ordered:
            raise BadDataError(
                f"{where}: expected {told} beside it, since the clean data is in another order."
            )
        if labels is None:
            if len(values) != len(self.clean):
                raise self._counts(where, len(values))
            labels = self.clean.labels
        if not ordered:
            pixels = as_pictures(torch.from_numpy(np.array(values)), str(where))
            mark = pixel_fingerprint(pixels, labels, self.clean.classes)
            return self._unpaired(TensorImages(pixels), labels, split, mark, f"{where}: {told}")
        rows = self._rows(labels, where, told)
        pixels = as_pictures(torch.from_numpy(np.array(values[rows])), str(where))
        mark = pixel_fingerprint(pixels, self.clean.labels, self.clean.classes)
        return self._paired(TensorImages(pixels), split, mark)

    def _rows(self, labels: Tensor, where: Path, told: str) -> list[int]:
        """The rows of the clean data among all rows: all of them, or those that a limit takes."""
        count, wanted = len(labels), len(self.clean)
        if count < wanted:
            raise self._counts(where, count)
        rows = torch.arange(count) if count == wanted else limited_rows(count, wanted)
        differ = int((labels[rows] != self.clean.labels).sum())
        if not differ:
            return [int(row) for row in rows]
        if count > wanted:
            raise self._counts(where, count)
        raise BadDataError(
            f"{where}: {told} says another class than the clean data for {differ} of {count} "
            "pictures.",
            hint="It belongs to other data, or its rows are in another order.",
        )

    def _counts(self, where: Path, count: int) -> BadDataError:
        return BadDataError(
            f"{where} has {count} images, the clean data {len(self.clean)}.",
            hint="Give the clean dataset whole, or with a limit.",
        )

    def _paired(self, images: Images, split: str, mark: str) -> Dataset:
        return replace(self.clean, split=split, images=images, fingerprint=mark, masks=None)

    def _unpaired(
        self, images: Images, labels: Tensor, split: str, mark: str, told: str
    ) -> Dataset:
        """Pictures in another order: as many of each class as the clean data has."""
        if len(labels) != len(self.clean):
            raise self._counts(self.folder / split, len(labels))
        if not torch.equal(labels.sort().values, self.clean.labels.sort().values):
            raise BadDataError(
                f"{told} have other classes than the clean data, or others as often.",
                hint="It belongs to other data.",
            )
        if ACCEPTED in self.clean.columns:
            raise BadDataError(
                f"{self.folder}: {self.clean.name} accepts several labels, and its pictures are "
                "not found again here.",
                hint="Keep the file names, or use the data with one label each.",
            )
        return replace(
            self.clean,
            split=split,
            images=images,
            labels=labels,
            fingerprint=mark,
            columns={},
            masks=None,
        )


def _last(file: str) -> str:
    # Corrupted pictures may have been written in another format.
    return PurePosixPath(file).stem


def _written(file: str, row: int) -> tuple[str, ...]:
    """The names that a picture may have been written under, those of namesakes first."""
    longer = "_".join(PurePosixPath(file).with_suffix("").parts[1:])
    return f"{longer}-{row:06d}", longer, _last(file)


def _read(path: Path) -> np.ndarray:
    try:
        found: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as problem:
        raise BadDataError(f"{path} cannot be read ({problem}).") from None
    return found


def _labels(file: Path, count: int, times: int) -> Tensor | None:
    """The labels of `count` pictures, which a file may repeat for each severity."""
    if not file.is_file():
        return None
    values = np.array(_read(file)).squeeze()
    if values.ndim != 1 or values.dtype.kind not in "iu" or len(values) not in (
        count,
        times * count,
    ):  # fmt: skip
        raise BadDataError(
            f"{file}: expected {count} whole numbers"
            + (f", once or {times} times" if times > 1 else "")
            + f", got {values.dtype} of shape {values.shape}.",
            hint="It belongs to other arrays.",
        )
    blocks = values.astype(np.int64).reshape(-1, count)
    if not (blocks == blocks[0]).all():
        raise BadDataError(f"{file}: the labels of the severities differ from one another.")
    return torch.from_numpy(blocks[0].copy())
