"""Corrupted datasets that already lie on disk, in the two public layouts.

ImageNet-C is `<corruption>/<severity>/<class>/<picture>`; CIFAR-10-C is `<corruption>.npy` with the
five severities one after the other, and `labels.npy`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from stockpot.datasets.dataset import Dataset, TensorImages, pixel_fingerprint
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
        return part

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
