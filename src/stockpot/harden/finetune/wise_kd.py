"""WiSE-KD: learn the labels and the soft predictions of a WiSE-FT model (in arXiv:2303.03052)."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from stockpot.datasets.dataset import Dataset
from stockpot.harden import hardeners
from stockpot.harden.counterfactual.distil import Teacher, soft_gap
from stockpot.harden.objective import Objective, Step
from stockpot.models.classifier import Classifier
from stockpot.models.load import load_for
from stockpot.types import ModelRef, NonNegative, Positive


@hardeners.register(
    "wise_kd",
    paper="arXiv:2303.03052",
    head="trained",
    whole="it keeps a whole teacher",
)
def wise_kd(
    *, teacher: ModelRef = "", gamma: NonNegative = 1.0, temperature: Positive = 10.0
) -> Objective:
    """Cross-entropy plus T squared times the divergence from a teacher on the same clean pictures.

    The teacher of the paper is WiSE-FT at alpha 0.5: fuse the zero-shot and the fine-tuned model
    with `wise_ft` and give its folder. `counterfactual` takes the same teacher as an addition.

    Args:
        teacher: a model folder, or in a recipe the name of a model; the model as it starts when
            left out.
        gamma: the weight of the divergence.
        temperature: that softens both predictions.
    """
    return FromTeacher(teacher, gamma, temperature)


@dataclass
class FromTeacher:
    """The objective, with its teacher."""

    teacher: str
    gamma: float
    temperature: float
    adviser: Teacher | None = None

    def begin(self, model: Classifier, data: Dataset, validation: Dataset | None) -> None:
        """Load the teacher, or keep the model as it starts."""
        given = load_for(self.teacher, data, device=model.device) if self.teacher else model
        self.adviser = Teacher(given, data.classes)

    def __call__(self, step: Step) -> Tensor:
        logits = step.model(step.pixels)
        loss = F.cross_entropy(logits, step.labels)
        if self.adviser is None:
            self.adviser = Teacher(step.model, step.model.classes)
        advice = self.adviser.advice(step.pixels)
        return loss + self.gamma * soft_gap(logits, advice, self.temperature)
