"""An open-vocabulary task: a hub dataset with names and prompts that a text tower can read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Literal

import torch

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.hub import hub
from stockpot.errors import BadDataError, UnknownNameError

TaskSplit = Literal["train", "test"]
_PLAIN_SPLITS = {"train": "train", "test": "test"}


@dataclass(frozen=True)
class HubTask:
    """What is known of a task before its data are here."""

    name: str
    path: str
    templates: tuple[str, ...]
    classes: tuple[str, ...] = ()
    """Readable names in the order of the labels; the data's own where this is empty."""
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
        data = self._named(data) if self.classes else data
        classes = tuple(name.replace("_", " ") for name in data.classes)
        said = repr((data.fingerprint, classes, self.templates))
        return replace(
            data,
            name=self.name,
            split=split,
            classes=classes,
            templates=self.templates,
            fingerprint=hashlib.sha256(said.encode()).hexdigest(),
        )

    def _named(self, data: Dataset) -> Dataset:
        if len(data.classes) == len(self.classes):
            return replace(data, classes=self.classes)
        # A small copy may lack classes; labels that are plain numbers still say which these are.
        numbers = [int(name) if name.isdigit() else -1 for name in data.classes]
        if not all(0 <= number < len(self.classes) for number in numbers):
            raise BadDataError(
                f"{self.name}: expected {len(self.classes)} classes, the data has "
                f"{len(data.classes)} ({', '.join(data.classes[:3])}, ...)."
            )
        return replace(data, classes=self.classes, labels=torch.tensor(numbers)[data.labels])


@cache
def class_names(task: str) -> tuple[str, ...]:
    """The class names of a task, as its authors give them, in the order of the labels."""
    text = (files("stockpot.datasets.tasks") / "class_names.txt").read_text(encoding="utf-8")
    for section in text.split("# ")[1:]:
        title, *names = section.splitlines()
        if title == task:
            return tuple(names)
    raise KeyError(task)
