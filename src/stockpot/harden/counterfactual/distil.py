"""What teacher and student must agree on: features of a picture, or soft predictions."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.errors import BadDataError, BadParameterError
from stockpot.harden.many.shares import mean_of_all
from stockpot.models.classifier import Classifier
from stockpot.models.fine_tuned import FineTunedNetwork
from stockpot.models.huggingface import last_linear
from stockpot.score.class_space import match_classes

Scale = Literal["raw", "normalised"]


class Outputs(NamedTuple):
    """Features and logits of one forward pass."""

    features: Tensor
    logits: Tensor


def outputs(model: Classifier, pixels: Tensor) -> Outputs:
    """Both from one pass; the features of a dual encoder are its projected embedding.

    They are taken before they are brought to unit length, so that their length is kept too. Other
    networks give what their last linear layer reads.
    """
    if isinstance(model.network, FineTunedNetwork):
        embedding = model.network.embedding(model.seen(pixels))
        return Outputs(embedding, model.network.classifier(F.normalize(embedding, dim=-1)))
    inputs: list[Tensor] = []

    def keep(_: Any, given: tuple[Tensor, ...]) -> None:
        inputs.append(given[0])

    handle = last_linear(model.network).register_forward_pre_hook(keep)
    try:
        logits: Tensor = model(pixels)
    finally:
        handle.remove()
    return Outputs(inputs[-1].flatten(1), logits)


def feature_gap(student: Tensor, teacher: Tensor, scale: Scale = "raw") -> Tensor:
    """The mean squared difference over images and dimensions, in float32.

    `normalised` divides by the teacher's mean square in this batch, so that a weight means the same
    whatever the scale of a backbone's features.
    """
    gap = F.mse_loss(student.float(), teacher.float())
    if scale == "normalised":
        gap = gap / mean_of_all(teacher.float().square().mean(), len(teacher)).clamp(min=1e-12)
    return gap


def soft_gap(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T squared times KL(teacher || student) of predictions softened by T, mean over images.

    The square keeps the size of the gradient when T changes.
    """
    softened = F.log_softmax(student.float() / temperature, dim=1)
    target = F.log_softmax(teacher.float() / temperature, dim=1)
    return temperature**2 * F.kl_div(softened, target, reduction="batchmean", log_target=True)


def frozen(model: Classifier) -> Classifier:
    """A copy that no longer learns, in evaluation mode."""
    import copy

    teacher = copy.deepcopy(model).eval()
    for parameter in teacher.parameters():
        parameter.requires_grad_(False)
    return teacher


class Teacher:
    """A model whose predictions are learned, in the order of the student's classes."""

    def __init__(self, model: Classifier, classes: tuple[str, ...]) -> None:
        """Find an output of the teacher for each of the student's classes, by name."""
        self.model = frozen(model)
        try:
            self._places = match_classes(model.classes, classes, "subset")
        except BadDataError:
            raise BadParameterError(
                f"teacher: expected a model with the {len(classes)} classes of the one that learns "
                f"({', '.join(classes[:3])}, ...), got {model.origin.source} with "
                f"{len(model.classes)} ({', '.join(model.classes[:3])}, ...)."
            ) from None

    def advice(self, pixels: Tensor) -> Tensor:
        """Its logits for the student's classes, without a graph."""
        return self._places.logits(taught(self.model, pixels).logits)


@torch.no_grad()
def taught(teacher: Classifier, pixels: Tensor) -> Outputs:
    """What the teacher says, without a graph."""
    return outputs(teacher, pixels)
