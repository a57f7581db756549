"""What counts as right for each image: its label, or any of several where the data says so."""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.datasets.dataset import Batch, Dataset
from stockpot.datasets.natural.real import ACCEPTED
from stockpot.models.class_space import ClassMap

NONE = -1


class RightAnswers:
    """The right outputs of every image, in the numbering of a class map."""

    def __init__(self, data: Dataset, mapping: ClassMap) -> None:
        self.several = ACCEPTED in data.columns
        if self.several:
            rows = [[int(each) for each in text.split()] for text in data.columns[ACCEPTED]]
            width = max(len(row) for row in rows)
            padded = torch.tensor([row + [NONE] * (width - len(row)) for row in rows])
        else:
            padded = data.labels[:, None]
        found = mapping.targets(padded.clamp_min(0))
        self._outputs = torch.where(padded == NONE, NONE, found)

    def hits(self, predictions: Tensor, batch: Batch) -> Tensor:
        """Which of the predictions, n x k, are right; padding never matches one."""
        wanted = self._outputs[batch.rows].to(predictions.device)
        return (predictions[:, :, None] == wanted[:, None, :]).any(dim=2)
