"""What a model answers to every image of a dataset: columns of the class space, kept as a whole.

Outputs that are no numbers are no answer: such a row is wrong, and as sure as can be.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stockpot.datasets.dataset import Dataset
from stockpot.measure.measurement import Context, Flags, forward_batches
from stockpot.models.classifier import Classifier, evaluating
from stockpot.score.class_space import ClassSpace
from stockpot.score.predictions import NONE, finite
from stockpot.score.scorer import Scorer, scorer_for

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Answers:
    """Logits of all images, and which columns are right."""

    logits: Floats
    """Images x columns; a row that is no answer is all NaN."""
    wanted: NDArray[np.int64]
    """The right columns of each image, filled up with -1."""
    correct: Flags
    groups: NDArray[np.str_] | None
    """Which images belong together, where some do."""
    scorer: Scorer

    def __len__(self) -> int:
        return len(self.logits)

    def take(self, rows: NDArray[np.int64]) -> Answers:
        """Those to some of the images."""
        return Answers(
            self.logits[rows],
            self.wanted[rows],
            self.correct[rows],
            None if self.groups is None else self.groups[rows],
            self.scorer.take(torch.from_numpy(rows)),
        )

    @property
    def answered(self) -> Flags:
        """Whether there is an answer at all."""
        return np.asarray(np.isfinite(self.logits).all(axis=1))

    def probabilities(self, temperature: float = 1.0) -> Floats:
        """Of every column; where there is no answer, NaN."""
        scaled = self.logits / temperature
        shares = np.exp(scaled - scaled.max(axis=1, keepdims=True))
        found: Floats = shares / shares.sum(axis=1, keepdims=True)
        return found

    def confidence(self, temperature: float = 1.0) -> Floats:
        """The highest probability; 1 where there is no answer."""
        best: Floats = np.nan_to_num(self.probabilities(temperature).max(axis=1), nan=1.0)
        return best

    def right_share(self, probabilities: Floats) -> Floats:
        """The probability that all right columns have together."""
        kept = np.take_along_axis(probabilities, np.maximum(self.wanted, 0), axis=1)
        found: Floats = np.where(self.wanted == NONE, 0.0, kept).sum(axis=1)
        return found


def answers_of(
    model: Classifier,
    data: Dataset,
    context: Context,
    what: str,
    space: ClassSpace = "all",
    record: str = "",
) -> Answers:
    """One pass over the images; answers are noted as those of a record, if one is named."""
    scorer = scorer_for(model.classes, data, space)
    found: list[Tensor] = []
    with evaluating(model):
        for outputs, _ in forward_batches(model, data, context, what):
            found.append(scorer.logits(outputs).cpu())
    logits = torch.cat(found) if found else torch.zeros(0, len(model.classes))
    logits = torch.where(finite(logits)[:, None], logits, torch.nan)
    if record:
        context.note(record, data, scorer)(logits, slice(None))
    accepted = scorer.accepted
    columns = scorer.mapping.targets(accepted.clamp_min(0))
    return Answers(
        logits=logits.double().numpy(),
        wanted=torch.where(accepted == NONE, NONE, columns).numpy(),
        correct=scorer.right(logits, slice(None))[:, 0].numpy(),
        groups=None if data.groups is None else np.asarray(data.groups),
        scorer=scorer,
    )
