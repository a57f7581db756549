"""Steps that another model shows: its plain twin, without what hides the gradient."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.dynamic.ways.way import Look, Model, Spot
from stockpot.score.predictions import predictions


class Transfer:
    """The twin's gradient; whether an image fools is asked of the model itself."""

    name = "transfer"
    passes = 1
    probes = 0

    def __init__(self, twin: Model) -> None:
        self.twin = twin

    def look(self, model: Model, pixels: Tensor, targets: Tensor, labels: Tensor) -> Look:
        """The twin's loss is climbed; its columns are the data's classes."""
        with torch.no_grad():
            logits = model(pixels.detach()).float()
        losses = F.cross_entropy(logits, targets, reduction="none")
        climbed = F.cross_entropy(self.twin(pixels).float(), labels, reduction="none")
        return Look(losses, predictions(logits) != targets, climbed)

    def blind(self, spot: Spot) -> Tensor | None:
        """It follows a gradient."""
        return None
