"""An open-vocabulary task: a hub dataset with the words that FusionBench has for it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import torch

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.hub import hub
from stockpot.datasets.words.conventions import fusionbench_words
from stockpot.errors import BadDataError, UnknownNameError

TaskSplit = Literal["train", "test"]
_PLAIN_SPLITS = {"train": "train", "test": "test"}


@dataclass(frozen=True)
class HubTask:
    """What is known of a task before its data are here."""

    name: str
    path: str
    splits: Mapping[str, str] = field(default_factory=lambda: _PLAIN_SPLITS)
    config: str | None = None
    image: str | None = None
    label: str | None = None

    def load(self, split: str, path: str | None = None) -> Dataset:
        """One split, from the hub or from a local copy with the same columns."""
        if split not in self.splits:
            raise UnknownNameError(f"split of {self.name}", split, self.splits)
        data = hub(
            path=path or self.path,
            split=self.splits[split],
            config=self.config,
            image=self.image,
            label=self.label,
        )
        words = fusionbench_words(self.name)
        classes = tuple(name.replace("_", " ") for name in words.names)
        data = self._named(data, classes)
        said = repr((data.fingerprint, classes))
        return replace(
            data,
            name=self.name,
            split=split,
            templates=words.templates,
            vocabulary=words,
            fingerprint=hashlib.sha256(said.encode()).hexdigest(),
        )

    def _named(self, data: Dataset, classes: tuple[str, ...]) -> Dataset:
        """The data under the names of the convention, which are in the order of the labels."""
        if len(data.classes) == len(classes):
            return replace(data, classes=classes)
        # A small copy may lack classes; labels that are plain numbers still say which these are.
        numbers = [int(name) if name.isdigit() else -1 for name in data.classes]
        if not all(0 <= number < len(classes) for number in numbers):
            raise BadDataError(
                f"{self.name}: expected {len(classes)} classes, the data has "
                f"{len(data.classes)} ({', '.join(data.classes[:3])}, ...)."
            )
        return replace(data, classes=classes, labels=torch.tensor(numbers)[data.labels])
