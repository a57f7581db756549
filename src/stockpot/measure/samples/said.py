"""What a model answered to every image of one record, noted batch by batch while a measure runs.

Numbers stay on the device until the measure has ended: to bring them over is to wait for them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stockpot.datasets.dataset import Dataset
from stockpot.score.predictions import NONE, predictions
from stockpot.score.scorer import Scorer

Note = Callable[[Tensor, Tensor | slice], None]
"""Takes columns of the class space and the rows of the data that they are about."""


def no_note(logits: Tensor, rows: Tensor | slice) -> None:
    """Where nobody asked for records."""


class Said:
    """The answers to images of a dataset: the best column of each, and how sure it was."""

    def __init__(self, data: Dataset, scorer: Scorer) -> None:
        self.data, self.scorer = data, scorer
        self._parts: list[tuple[Tensor | slice, Tensor, Tensor]] = []

    def add(self, logits: Tensor, rows: Tensor | slice) -> None:
        """The columns of a batch."""
        logits = logits.detach()
        self._parts.append((rows, predictions(logits), logits.softmax(dim=1).amax(dim=1)))

    def chose(self, columns: Tensor) -> None:
        """The columns chosen for all images in order, where it is not known how surely."""
        self._parts.append((slice(None), columns, torch.full((len(columns),), torch.nan)))

    @property
    def predicted(self) -> NDArray[np.int64]:
        """The column that was chosen for every image; `NONE` where there is no answer."""
        found = torch.full((len(self.data),), NONE)
        for rows, best, _ in self._parts:
            found[rows] = best.cpu()
        return found.numpy()

    @property
    def confidence(self) -> NDArray[np.float32]:
        """The probability of that column; NaN where there is no answer, or it is not known."""
        found = torch.full((len(self.data),), torch.nan)
        for rows, _, sure in self._parts:
            found[rows] = sure.float().cpu()
        return found.numpy()

    @property
    def names(self) -> list[str]:
        """What the columns are called, up to the last one that was chosen."""
        last = int(self.predicted.max(initial=NONE))
        return [self.scorer.answer(column) for column in range(last + 1)]
