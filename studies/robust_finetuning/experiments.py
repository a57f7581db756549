"""The experiments of plan.md: what is tuned on, chosen on and judged on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import stockpot
from stockpot.datasets.dataset import Dataset
from stockpot.results.packed import pack_labels

TRAINED = 320
"""Pictures to tune on: 20 steps of 16."""


class Experiment(NamedTuple):
    """What is tuned on, chosen on and judged on."""

    name: str
    models: tuple[str, ...]
    train: Dataset
    validation: Dataset
    sets: dict[str, Dataset]
    """The first is inside."""

    def clusters(self, name: str) -> str:
        """Which pictures show one concept, in the order of the concepts' names, for all sets."""
        concepts = self.sets[name].columns.get("concept")
        if concepts is None:
            return ""
        known, places = np.unique(np.asarray(concepts), return_inverse=True)
        return pack_labels(places.astype(np.int64), known.tolist())[0]


def experiments(models: tuple[str, ...], small: bool = False) -> list[Experiment]:
    """Drawings with all models, and contexts for masks alone; `small` is for a trial."""
    least = 64 if small else None

    def contexts(split: str, copies: int = 1) -> Dataset:
        return stockpot.load_dataset(
            "object_on_context", split=split, copies=copies, exclude_family="fluent"
        ).limited(least)

    def domain(kind: str, limit: int | None = None) -> Dataset:
        return stockpot.load_dataset("domains", domain=kind).limited(least or limit)

    drawings = stockpot.load_dataset("domains", split="fit", domain="drawing")
    order = np.random.default_rng(0).permutation(len(drawings)).tolist()
    return [
        Experiment("drawings", models, drawings.take(order[: least or TRAINED]),
                   drawings.take(order[640 : 640 + (least or 250)]),
                   {"drawing": domain("drawing"), "photo": domain("photo", limit=600),
                    "icon": domain("icon")}),
        Experiment("contexts", ("object-single",), contexts("train").limited(TRAINED),
                   contexts("val", 3), {"inside": contexts("test")}),
    ]  # fmt: skip
