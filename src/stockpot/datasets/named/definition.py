"""Datasets that are known by name: where they come from and how one sees that they are right."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

from stockpot.datasets.dataset import Dataset, TensorImages, pixel_fingerprint
from stockpot.datasets.fetch.cache import cache_dir
from stockpot.datasets.fetch.source import Progress, Source, SourceFailedError, silent
from stockpot.datasets.named.decoded import Part, read_facts, read_part, write_decoded
from stockpot.datasets.named.held_out import LAST_THOUSAND, HeldOut
from stockpot.datasets.words.words import Words
from stockpot.errors import UnknownNameError, UserError

NamedSplit = Literal["train", "test", "val", "fit"]
"""What a named dataset is parted into; val and fit are parts of train."""
Decoder = Callable[[Path], dict[str, Part]]
"""From what a source delivered to the splits of the dataset."""


class Offer(NamedTuple):
    """A source, and how its files are decoded."""

    source: Source
    decode: Decoder


@dataclass(frozen=True)
class NamedSet:
    """Everything that is known of a dataset before it is fetched."""

    name: str
    classes: tuple[str, ...]
    counts: Mapping[str, int]
    fingerprints: Mapping[str, str]
    licence: str
    templates: tuple[str, ...]
    offers: tuple[Offer, ...]
    held_out: HeldOut = LAST_THOUSAND
    """The training images that `val` has and `fit` lacks."""
    words: Words | None = None
    """The words of a convention, where there is one; `templates` are our own."""

    @property
    def path(self) -> Path:
        """Where the decoded set lies once it is fetched."""
        return cache_dir() / "datasets" / f"{self.name}.safetensors"

    def get(self, progress: Progress = silent) -> Path:
        """Bring the dataset here unless it is here already."""
        if self.path.is_file():
            return self.path
        downloads = cache_dir() / "downloads"
        failures = []
        for offer in self.offers:
            try:
                fetched = offer.source.fetch(downloads, progress)
                progress(f"decoding {self.name}", 0, 1)
                parts = offer.decode(fetched)
                self._check(parts, offer.source.label)
            except SourceFailedError as problem:
                failures.append(f"{offer.source.label}: {problem}")
                continue
            facts = {f"{split}.fingerprint": mark for split, mark in self.fingerprints.items()}
            write_decoded(self.path, parts, {**facts, "source": offer.source.label})
            progress(f"decoding {self.name}", 1, 1)
            shutil.rmtree(fetched) if fetched.is_dir() else fetched.unlink()
            return self.path
        raise UserError(
            f"{self.name} could not be fetched from any of {len(self.offers)} sources: "
            + " | ".join(failures)
        )

    def load(self, split: str) -> Dataset:
        """One split of the fetched dataset, or `fit` and `val`: the parts of `train`."""
        if split in ("fit", "val"):
            whole = self.load("train")
            chosen = self.held_out(whole.labels) == (split == "val")
            return replace(whole.take(chosen.nonzero()[:, 0]), split=split)
        if split not in self.counts:
            raise UnknownNameError(f"split of {self.name}", split, (*self.counts, "fit", "val"))
        if not self.path.is_file():
            raise UserError(
                f"{self.name} is not here yet.", hint=f"Run `stockpot data get {self.name}`."
            )
        part = read_part(self.path, split)
        return Dataset(
            name=self.name,
            split=split,
            images=TensorImages(part.in_colour()),
            labels=part.labels,
            classes=self.classes,
            fingerprint=read_facts(self.path)[f"{split}.fingerprint"],
            licence=self.licence,
            templates=self.templates,
            vocabulary=self.words,
        )

    def _check(self, parts: Mapping[str, Part], label: str) -> None:
        for split, count in self.counts.items():
            part = parts[split]
            if len(part.images) != count or len(part.labels) != count:
                raise SourceFailedError(
                    f"expected {count} {split} images, got {len(part.images)} with "
                    f"{len(part.labels)} labels."
                )
            mark = pixel_fingerprint(part.in_colour(), part.labels, self.classes)
            if mark != self.fingerprints[split]:
                raise SourceFailedError(
                    f"expected the {split} images of {self.name} with fingerprint "
                    f"{self.fingerprints[split][:16]}..., {label} has {mark[:16]}..."
                )
