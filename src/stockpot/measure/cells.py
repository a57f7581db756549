"""One cell of a run: one model, one measure, one dataset, described by plain values.

A cell can be sent to another process or machine; it loads what it needs (and keeps the last few
models and datasets for the next cell), measures, and saves its result file itself.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import torch

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.kept import kept_dataset
from stockpot.defend.defended import Wanted, behind
from stockpot.dynamic.references import all_references
from stockpot.engine import pick_device
from stockpot.errors import BadDataError, UserError
from stockpot.harden.trained_on import recorded
from stockpot.measure import measures
from stockpot.measure.by_content import by_content, contents
from stockpot.measure.chosen_data import SPLITS
from stockpot.measure.overlap import Overlap, overlap, unseen_part
from stockpot.measure.parts import Part
from stockpot.models.classifier import Classifier
from stockpot.models.forward.options import Forward, chosen_forward
from stockpot.models.inputs import seen_of
from stockpot.models.load import identify, load_for, words_for
from stockpot.results.schema import (
    CellKey,
    Flag,
)
from stockpot.score.class_space import BY_POSITION, match_classes
from stockpot.types import BatchSize, PrecisionChoice, Variant


@dataclass(frozen=True)
class ModelSpec:
    """A model by name: where it is and how to load it."""

    name: str
    source: str | Classifier
    options: dict[str, Any] = field(default_factory=dict)
    variant: Variant | None = None
    """Which entry of a recipe it stands in, with its seed and its point of a sweep."""


@dataclass(frozen=True)
class DataSpec:
    """A dataset by name: what to load, and how much of it."""

    name: str
    source: str | Dataset
    options: dict[str, Any] = field(default_factory=dict)
    loaded: Dataset | None = field(default=None, compare=False)
    """The dataset itself, where it comes along to another machine."""

    def load(self) -> Dataset:
        """The dataset; the last few are kept."""
        if self.loaded is not None:
            return self.loaded
        if isinstance(self.source, Dataset):
            return self.source
        return kept_dataset(self.source, self.options)

    @property
    def may_change(self) -> bool:
        """Whether it lies in a place of the user's, where other images may stand tomorrow."""
        named = isinstance(self.source, str) and os.path.exists(os.path.expanduser(self.source))
        return named or "path" in self.options

    def sibling(self, split: str) -> Dataset:
        """Another split of the same dataset, all of it."""
        if isinstance(self.source, Dataset):
            raise BadDataError(f"{self.source} was given as images, and their {split} is unknown.")
        options = {key: value for key, value in self.options.items() if key != "limit"}
        return DataSpec(self.name, self.source, {**options, "split": split}).load()


@dataclass(frozen=True)
class Cell:
    """What to measure, where to save it, and how to run."""

    model: ModelSpec
    measure: str
    data: DataSpec
    params: dict[str, Any]
    seed: int
    store: str | None
    device: str
    batch_size: BatchSize
    unseen: bool = False
    """Leave out the images that the model has seen; they are marked otherwise."""
    precision: PrecisionChoice = "auto"
    compile: bool = False
    samples: bool = False
    """Whether per-image records are written beside the result."""
    index: str = ""
    """An index of results that is told of this one."""
    shards: int = 1
    """Into how many parts its images are divided; no number depends on it."""
    part: Part | None = None
    """Which part to go through, of a cell that is divided; the whole cell otherwise."""

    @property
    def divided(self) -> bool:
        """Whether its images can be gone through in parts, and are to be."""
        return (
            self.shards > 1
            and not self.samples  # records are written by whoever sees all images
            and self.store is not None
            and self.measure in measures
            and measures.get(self.measure).tags.splits
        )

    @property
    def passes(self) -> bool:
        """Whether the measure leaves forward passes to the context; others know no precision."""
        return self.measure in measures and measures.get(self.measure).tags.passes

    @property
    def forward(self) -> Forward:
        """How forward passes are made."""
        if not self.passes:
            return Forward()
        return chosen_forward(self.precision, self.compile, pick_device(self.device))

    def overlap(self) -> Overlap | None:
        """What the model has seen of the data."""
        spec = self.model
        return overlap(seen_of(spec.source, undefended(spec.options)), self.data.load())

    def images(self) -> tuple[Dataset, Overlap | None]:
        """The images to measure on, and what was seen of them."""
        data, known = self.data.load(), self.overlap()
        if not self.unseen or known is None:
            return data, known
        return unseen_part(data, known, self.model.name), replace(known, left_out=True)

    def key(
        self, references: Mapping[str, str] | None = None, identity: str | None = None
    ) -> CellKey:
        """The question this cell answers; loads the data, not the model.

        Args:
            references: which of its parameters name models; those of its measure by default.
            identity: the fingerprint of its model, where that is known.
        """
        if references is None:
            references = all_references(measures.get(self.measure), self.params)
        data = self.images()[0] if self.unseen else self.data.load()
        spec = self.model
        own = undefended(spec.options)
        words = words_for(spec.source, data, own)
        variant = spec.variant or Variant(spec.name)
        forward = self.forward
        return CellKey(
            model=spec.name,
            entry=variant.entry,
            training_seed=variant.seed,
            sweep=dict(variant.sweep),
            measure=self.measure,
            data=self.data.name,
            params=by_content(self.params, references) | self._splits(references),
            seed=self.seed,
            model_options=_plain(_with_defence(spec)),
            model_fingerprint=identity or _identity(spec.source, own),
            data_fingerprint=data.fingerprint,
            words=str(words or ""),
            seen=seen_of(spec.source, own).digest,
            precision=forward.precision,
            compiled=forward.compile,
            contents=contents(self.params, references),
        )

    def _splits(self, references: Mapping[str, str]) -> dict[str, str]:
        """Parameters that name another split of the data, by its content where that may change."""
        found = {}
        for key, value in self.params.items():
            if references.get(key) == "data" and value in SPLITS and self.data.may_change:
                with suppress(UserError):  # there is none, and measuring says so
                    found[key] = f"{value}@{self.data.sibling(value).fingerprint[:16]}"
        return found


def _identity(source: str | Classifier, options: Mapping[str, Any]) -> str:
    """The fingerprint of a model; of one in memory, also of what its weights do not tell.

    Those are its code, which is in the fingerprint that it was loaded with, and its class names,
    which are options or in the files of any other.
    """
    found = identify(source, options)
    if not isinstance(source, Classifier):
        return found
    whole = repr((found, source.origin.fingerprint, source.classes))
    return hashlib.sha256(whole.encode()).hexdigest()


def by_position_told(model: Classifier, data: Dataset) -> tuple[list[Flag], list[str]]:
    """What to say where a model does not name its classes: they are taken in the data's order."""
    mapping = match_classes(model.classes, data.classes)
    if not mapping.by_position:
        return [], []
    count = len(model.classes)
    return [Flag(name=BY_POSITION, count=count, of=count)], [mapping.note]


def model_for(
    spec: ModelSpec, data: Dataset, device: torch.device, state: str | None = None
) -> Classifier:
    """The model, with a head for the data's classes where it needs one, and its defences."""
    own = undefended(spec.options)
    model = load_for(spec.source, data, options=_plain(own), device=device, keep=True, state=state)
    return behind(model, _defence(spec))


def undefended(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of `load_model`: all but the defences around the model."""
    return {key: value for key, value in options.items() if key != "defend"}


def _defence(spec: ModelSpec) -> Wanted:
    """The defence that is asked for, else the one behind which the model was trained."""
    if "defend" in spec.options:
        return cast(Wanted, spec.options["defend"])
    made = recorded(spec.source, spec.options.get("revision"))
    return made.parameters.get("defend") if made and made.verb in ("harden", "export") else None


def _with_defence(spec: ModelSpec) -> dict[str, Any]:
    """The options by which a cell is known: a defence that the model brings is one of them."""
    defence = _defence(spec)
    return {**spec.options, "defend": defence} if defence else spec.options


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = json.loads(json.dumps(options, default=_as_text))
    except TypeError as problem:
        raise UserError(f"model options must be plain values: {problem}.") from problem
    return plain


def _as_text(value: Any) -> str:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not")
