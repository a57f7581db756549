"""The experiments of plan.md: what is tuned on, chosen on and judged on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

import stockpot
from stockpot.datasets.dataset import Dataset, limited_rows
from stockpot.results.packed import pack_labels

DRAWN, SEEN_IN_CONTEXT = 640, 320
"""Pictures to tune on, in steps of 16: 40 and 20."""
PHOTOGRAPHS = 600


class Experiment(NamedTuple):
    """What is tuned on, chosen on and judged on."""

    name: str
    models: tuple[str, ...]
    train: Dataset
    validation: Dataset | None
    """None where nothing is chosen."""
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

    def contexts(split: Literal["train", "test"], seed: int = 0) -> Dataset:
        return stockpot.load_dataset(
            "object_on_context", split=split, copies=1, exclude_family="fluent", seed=seed
        )

    def rows(data: Dataset, order: Sequence[int], n: int) -> Dataset:
        return data.take(list(order[: least or n]))

    drawings = stockpot.load_dataset("domains", split="fit", domain="drawing")
    order = np.random.default_rng(0).permutation(len(drawings)).tolist()
    photographs = stockpot.load_dataset("domains", domain="photo")
    # The first run was judged on these.
    known = limited_rows(len(photographs), PHOTOGRAPHS, 0)
    fresh = np.setdiff1d(np.arange(len(photographs)), known)
    fresh = np.sort(np.random.default_rng(1).permutation(fresh)[:PHOTOGRAPHS]).tolist()
    return [
        Experiment("drawings", models, rows(drawings, order, DRAWN),
                   rows(drawings, order[640:], 250),
                   {"drawing": rows(drawings, order[890:], 500),
                    "photo": rows(photographs, fresh, PHOTOGRAPHS),
                    "icon": stockpot.load_dataset("domains", domain="icon", split="train")
                    .limited(least)}),
        Experiment("contexts", ("object-single",),
                   contexts("train").limited(least or SEEN_IN_CONTEXT),
                   None, {"inside": contexts("test", 1).limited(least)}),
    ]  # fmt: skip
