"""A seasoned soup: the weights, the model, and the scores on images the choice did not see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from stockpot.checkpoints.folder import staged_folder
from stockpot.checkpoints.model_card import write_card
from stockpot.checkpoints.record import Record
from stockpot.checkpoints.seen import Seen
from stockpot.models.classifier import Classifier
from stockpot.results.resamples import Groups
from stockpot.results.schema import Score
from stockpot.results.statistics import share_interval
from stockpot.season import seasoners
from stockpot.season.matrix import Matrix


@dataclass(frozen=True)
class Seasoned:
    """What `stockpot.season` gives back."""

    method: str
    members: tuple[str, ...]
    weights: tuple[float, ...]
    """One per member; of per-tensor weights the mean, each tensor counted by its size."""
    tensor_weights: Mapping[str, Tensor] | None
    model: Classifier
    accuracy: Score
    """Under the attacks that the choice was made under, if any; its condition names them."""
    member_accuracy: Mapping[str, Score]
    ensemble_accuracy: Score
    """The mean of the members' softmax outputs, at as many forward passes as members."""
    clean_accuracy: Score | None
    """Of the soup on images as they are, where the three above are under attack (`threats`)."""
    selected_on: tuple[int, ...]
    held_out: tuple[int, ...]
    matrix: Matrix | None
    """Soups x images: the selection's, or all images with `full_matrix`."""
    seen: Seen
    """The images that members and method saw."""
    record: Record
    """What was asked, and under `details` what came of it."""

    def __repr__(self) -> str:
        parts = zip(self.members, self.weights, strict=True)
        soup = ", ".join(f"{name} {weight:.2f}" for name, weight in parts)
        return f"Seasoned({self.method}: {soup}; {self.accuracy.told})"

    def save(self, folder: str | Path) -> Path:
        """Write the soup as a folder that `load_model` reads, with its card and its record.

        The folder appears complete or not at all.
        """
        target = Path(folder)
        entry = seasoners.get(self.method)
        with staged_folder(target) as work:
            self.model.save(work)
            if self.matrix is not None:
                self.matrix.save(work / "season_matrix.npz")
            write_card(work, self.record, summary=entry.summary, paper=entry.paper, seen=self.seen)
        return target


def accuracy_score(
    correct: NDArray[np.bool_], groups: Groups | None = None, **condition: str
) -> Score:
    """A share of images with Wilson's interval; pictures of one original count together."""
    n = int(correct.size)
    interval = share_interval(correct, groups)
    return Score(
        metric="robust_accuracy" if "threats" in condition else "accuracy",
        value=int(correct.sum()) / n if n else 0.0,
        n=n,
        ci_low=interval.low,
        ci_high=interval.high,
        ci_method=interval.method,
        condition=dict(condition),
    )
