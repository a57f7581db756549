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
from stockpot.measure.from_outcomes import about, part_of, scores_from_outcomes
from stockpot.results.headline import format_score
from stockpot.results.schema import CellResult, Flag, Score

SEEN = "seen"
LEFT_OUT = "seen_left_out"
LOST = "seen_unknown"
_SHOWN = (
    "accuracy",
    "robust_accuracy",
    "union_accuracy",
    "audited_accuracy",
    "mean_corruption_accuracy",
    "mce",
    "relative_mce",
    "gap",
    "perturbed_accuracy",
    "fmr",
    "matched_fmr",
    "reconstruction_accuracy",
    "searched_accuracy",
    "transfer_accuracy",
)
"""Scores that are given for the images that were not seen too."""
_NO_RECORD = "no score, since this measure keeps no record of single images"


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
                others = ", ".join(_said(score) for score in without) or _NO_RECORD
                text += f"; on the other {n - self.count:,}: {others}."
            found.append(text)
        if self.lost:
            found.append(
                f"{self.lost:,} images were seen when the model or its parents were made, and "
                "which ones is not known: seen.npz is missing beside stockpot.json, or was changed."
            )
        return found


def unseen_scores(result: CellResult) -> list[Score]:
    """The scores on the images that were not seen, as far as it is known which ones were right."""
    seen = result.seen_images
    if seen is None or not 0 < seen.sum() < len(seen):
        return []
    new, known = part_of(result, ~seen), {about(score) for score in result.scores}
    if "correct" not in new.outcomes:
        return []
    return [
        score.model_copy(update={"metric": f"unseen_{score.metric}"})
        for score in scores_from_outcomes(new)
        if score.metric in _SHOWN and about(score) in known and "severity" not in score.condition
    ]


def with_unseen(result: CellResult, known: Overlap) -> CellResult:
    """The result with its scores on the images that were not seen, and what there is to say."""
    without = unseen_scores(result)
    update = {
        "scores": [*result.scores, *without],
        "notes": [*result.notes, *known.notes(without)],
    }
    return result.model_copy(update=update)


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
