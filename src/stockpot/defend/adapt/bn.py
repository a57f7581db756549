"""BatchNorm statistics from the test batch, with those of training as a prior.

Schneider et al., Improving robustness against common corruptions by covariate shift adaptation
(arXiv:2006.16971). Nothing is learned; the statistics are those of each batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.defend import defences
from stockpot.defend.adapt.adapting import Adapting
from stockpot.defend.adapt.batch_statistics import BatchStatistics
from stockpot.defend.adapt.learner import Learner
from stockpot.errors import UserError
from stockpot.models.classifier import Classifier
from stockpot.types import NonNegative


@defences.register("bn", paper="arXiv:2006.16971", adapts=True)
def bn(model: Classifier, *, prior: NonNegative = 16) -> Classifier:
    """Normalise by the statistics of the batch, mixed with those of training.

    Args:
        prior: how many pictures the statistics of training count against those of the batch; 0
            uses those of the batch alone.
    """
    made = Adapting(model, f"bn(prior={prior:g})", lambda inner, _: _Looks(inner), prior)
    if not any(isinstance(layer, BatchStatistics) for layer in made.modules()):
        raise UserError(
            f"bn: expected a model with BatchNorm layers, got none in {model.origin.source}.",
            hint="LayerNorm and GroupNorm keep no statistics; tent and sar adapt their weights.",
        )
    return made


class _Looks(Learner):
    """Learns nothing: the layers themselves look at the batch."""

    def __call__(self, pixels: Tensor) -> Tensor:
        with torch.no_grad():
            logits: Tensor = self.model(pixels)
        return logits
