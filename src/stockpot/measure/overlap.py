"""Which of the images a model is measured on it has seen before, and what its scores are without.

Images are compared one by one, by their pixels; a model without a record of what it has seen costs
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stockpot.checkpoints.seen import Seen
from stockpot.datasets.by_content.image_hashes import image_hashes
from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadDataError
from stockpot.measure.measurement import proportion
from stockpot.results.headline import format_score
from stockpot.results.schema import Flag, Score
from stockpot.results.statistics import Groups

SEEN = "seen"
LEFT_OUT = "seen_left_out"
LOST = "seen_unknown"
_OUTCOMES = {
    "accuracy": "correct",
    "robust_accuracy": "robust:{norm}:{eps}",
    "union_accuracy": "union",
}
"""Scores that are shares of images, and the record of images they are shares of."""


@dataclass(frozen=True)
class Overlap:
    """What a model has seen of a dataset."""

    seen: NDArray[np.bool_]
    """For each image, whether it was seen in any use."""
    uses: Mapping[str, int]
    lost: int = 0
    """Images of which is only known that there were so many."""
    left_out: bool = False

    @property
    def count(self) -> int:
        """How many were seen."""
        return int(self.seen.sum())

    @property
    def flags(self) -> list[Flag]:
        """What there is to say of it, for programs."""
        n, found = len(self.seen), []
        if self.count:
            name = LEFT_OUT if self.left_out else SEEN
            found.append(Flag(name=name, count=self.count, of=n, condition=dict(self.uses)))
        if self.lost:
            found.append(Flag(name=LOST, count=self.lost, of=self.lost))
        return found

    def notes(self, without: Sequence[Score]) -> list[str]:
        """The same for people, with the scores on the other images."""
        found = []
        n = len(self.seen)
        if self.count:
            uses = ", ".join(f"{use} {count:,}" for use, count in self.uses.items())
            text = f"{self.count:,} of {n:,} images were seen when the model was made ({uses})"
            if self.left_out:
                text += f" and are left out; {n - self.count:,} are scored."
            elif self.count == n:
                text += ": no score here is on new images."
            else:
                others = ", ".join(_said(score) for score in without)
                text += f"; on the other {n - self.count:,}: {others}." if others else "."
            found.append(text)
        if self.lost:
            found.append(
                f"{self.lost:,} images were seen when the model or its parents were made, and "
                "which ones is not known: seen.npz is missing beside stockpot.json, or was changed."
            )
        return found

    def scores_without(
        self,
        scores: Sequence[Score],
        outcomes: Mapping[str, NDArray[np.bool_]],
        groups: Groups | None = None,
    ) -> list[Score]:
        """The shares among the images that were not seen; images of one group count together."""
        if self.left_out or not 0 < self.count < len(self.seen):
            return []
        own = None if groups is None else np.asarray(groups)[~self.seen]
        found = []
        for score in scores:
            name = _OUTCOMES.get(score.metric, "")
            flags = outcomes.get(name.format_map(_Known(score.condition)))
            if flags is not None and len(flags) == len(self.seen) == score.n:
                part = proportion(f"unseen_{score.metric}", flags[~self.seen], groups=own)
                found.append(part.model_copy(update={"condition": score.condition}))
        return found


class _Known(dict[str, object]):
    """Conditions by name; what is not known is nothing."""

    def __missing__(self, key: str) -> str:
        return ""


def overlap(seen: Seen, data: Dataset) -> Overlap | None:
    """What of a dataset was seen; nothing where that is none of it."""
    if not seen:
        return None
    # Whole sets are known by their fingerprints; the images need not be looked at.
    hashes = image_hashes(data.images) if seen.images else np.zeros(len(data), dtype=np.uint64)
    by_use = seen.among(hashes, data.fingerprint)
    if not by_use and not seen.lost:
        return None
    every = np.zeros(len(data), dtype=bool)
    for flags in by_use.values():
        every |= flags
    return Overlap(every, {use: int(flags.sum()) for use, flags in by_use.items()}, seen.lost)


def unseen_part(data: Dataset, known: Overlap | None, model: str) -> Dataset:
    """The images that a model has not seen."""
    if known is None or not known.count:
        return data
    rows = np.flatnonzero(~known.seen)
    if not len(rows):
        raise BadDataError(
            f"{data}: expected images that {model} has not seen, and all {len(data)} were seen "
            "when it was made.",
            hint="Measure on other images, or on all of them without unseen.",
        )
    return data.take(rows.tolist())


def _said(score: Score) -> str:
    metric = score.metric.removeprefix("unseen_").replace("_", " ")
    return " ".join([metric, *map(str, score.condition.values()), format_score(score)])
