"""Corrupted datasets that already lie on disk, in the two public layouts.

ImageNet-C is `<corruption>/<severity>/<class>/<picture>`; CIFAR-10-C is `<corruption>.npy` with the
five severities one after the other, and `labels.npy`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath

import numpy as np
import torch

from stockpot.datasets.dataset import ACCEPTED, Dataset, TensorImages, pixel_fingerprint
from stockpot.datasets.load import load_dataset
from stockpot.errors import BadDataError


class CorruptionSet:
    """A folder of corrupted images that belongs to a clean dataset."""

    def __init__(self, folder: str | Path, clean: Dataset) -> None:
        self.folder = Path(folder).expanduser()
        self.clean = clean
        if not self.folder.is_dir():
            raise BadDataError(f"no folder of corrupted images at {self.folder}.")
        self.arrays = bool(list(self.folder.glob("*.npy")))

    @property
    def description(self) -> str:
        """Which layout the folder has."""
        layout = "CIFAR-10-C" if self.arrays else "ImageNet-C"
        return f"{self.folder.name} ({layout} layout)"

    def load(self, corruption: str, severity: int) -> Dataset:
        """The images of one corruption and severity, with the clean dataset's classes."""
        read = self._array if self.arrays else self._pictures
        part = read(corruption, severity)
        if len(part) != len(self.clean):
            raise BadDataError(
                f"{self.folder}: {corruption} at severity {severity} has {len(part)} images, the "
                f"clean data {len(self.clean)}.",
                hint="Give the clean dataset whole, without a limit.",
            )
        return self._with_accepted(part)

    def _with_accepted(self, part: Dataset) -> Dataset:
        """The labels that the clean data accepts, for the same pictures; by file name if known."""
        if ACCEPTED not in self.clean.columns:
            return part
        told = self.clean.columns[ACCEPTED]
        if "file" in self.clean.columns and "file" in part.columns:
            names = [_last(file) for file in self.clean.columns["file"]]
            known = dict(zip(names, told, strict=True))
            told = tuple(known.get(_last(file), "") for file in part.columns["file"])
            same = len(known) == len(names) and all(told)
        else:
            same = bool(torch.equal(part.labels, self.clean.labels))
        if not same:
            raise BadDataError(
                f"{self.folder}: {self.clean.name} accepts several labels, and its pictures are "
                "not found again here.",
                hint="Keep the file names, or use the data with one label each.",
            )
        return replace(part, columns={**part.columns, ACCEPTED: told})

    def _array(self, corruption: str, severity: int) -> Dataset:
        path = self.folder / f"{corruption}.npy"
        if not path.is_file():
            there = ", ".join(sorted(p.stem for p in self.folder.glob("*.npy"))) or "nothing"
            raise BadDataError(f"{self.folder} has no {corruption}.npy. It holds: {there}.")
        values = np.load(path, mmap_mode="r", allow_pickle=False)
        count = len(values) // 5
        block = torch.from_numpy(np.array(values[(severity - 1) * count : severity * count]))
        pixels = block.permute(0, 3, 1, 2).contiguous()
        file = self.folder / "labels.npy"
        labels = self.clean.labels
        if file.is_file():
            stored = torch.from_numpy(np.load(file, allow_pickle=False).astype(np.int64))
            labels = stored[(severity - 1) * count : severity * count]
        return Dataset(
            name=self.clean.name,
            split=f"{corruption}-{severity}",
            images=TensorImages(pixels),
            labels=labels,
            classes=self.clean.classes,
            fingerprint=pixel_fingerprint(pixels, labels, self.clean.classes),
        )

    def _pictures(self, corruption: str, severity: int) -> Dataset:
        path = self.folder / corruption / str(severity)
        if not path.is_dir():
            raise BadDataError(
                f"{self.folder} has no {corruption}/{severity}; expected the ImageNet-C layout "
                "(corruption/severity/class/picture) or CIFAR-10-C files (corruption.npy)."
            )
        return load_dataset("imagefolder", path=str(path), classes=list(self.clean.classes))


def _last(file: str) -> str:
    # Corrupted pictures may have been written in another format.
    return PurePosixPath(file).stem
