"""Contrastive training of both towers of a dual encoder on captions (CLIP, arXiv:2103.00020).

Pictures of a class are described by one of its captions, drawn anew in every step. Where two
pictures of a batch are of one class, or share a caption, both captions are right for both, so the
targets spread evenly over all right ones (the bidirectional loss of UniCL, arXiv:2204.03610).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.errors import UserError
from stockpot.harden import hardeners
from stockpot.harden.objective import Objective, Step
from stockpot.models.prompts import Drawn
from stockpot.models.zero_shot import ZeroShotNetwork

if TYPE_CHECKING:
    from stockpot.models.classifier import Classifier

_LARGEST_SCALE = 100.0
"""CLIP never lets its logit scale grow beyond this."""


@hardeners.register(
    "contrastive",
    paper="arXiv:2103.00020",
    towers="both",
    whole="it asks the towers apart from one another",
)
def contrastive() -> Objective:
    """Train image and text tower of a dual encoder so that pictures and their captions meet.

    The captions of a class are the prompts of the data: its templates around the class name, or
    what the data says itself.
    """

    def objective(step: Step) -> Tensor:
        pairs = described(step)
        same = match(step.whole.labels) | match(pairs.drawn.identity)
        return contrastive_loss(pairs.images, pairs.texts, dual_encoder(step.model).scale(), same)

    return objective


class Described(NamedTuple):
    """Unit vectors of all pictures of a batch and of the captions drawn for them."""

    images: Tensor
    texts: Tensor
    drawn: Drawn


def described(step: Step) -> Described:
    """Every picture meets every caption, so those of all processes are gathered."""
    network = dual_encoder(step.model)
    drawn = network.captions.draw(step.whole.labels, step.generator)
    images = step.model.features(step.pixels)
    texts = network.text_features(step.own(drawn.tokens), step.own(drawn.mask))
    return Described(step.gathered(images), step.gathered(texts), drawn)


def contrastive_loss(images: Tensor, texts: Tensor, scale: Tensor, same: Tensor) -> Tensor:
    """The mean of both directions' cross-entropy; `same` marks which pairs belong together.

    Args:
        images: unit vectors, one per picture.
        texts: unit vectors, one per caption; caption i describes picture i.
        scale: what cosines are multiplied with; held at 100 or less.
        same: picture x caption, true where the caption is right. With only its diagonal true this
            is CLIP's loss.
    """
    # In bfloat16 a cosine has two digits, too few for a scale of up to 100.
    with torch.autocast(images.device.type, enabled=False):
        logits = scale.float().clamp(max=_LARGEST_SCALE) * (images.float() @ texts.float().T)
    right = same.to(logits.dtype)
    by_picture = F.cross_entropy(logits, right / right.sum(dim=1, keepdim=True))
    by_caption = F.cross_entropy(logits.T, (right / right.sum(dim=0, keepdim=True)).T)
    return (by_picture + by_caption) / 2


def match(values: Tensor) -> Tensor:
    """Which pairs of a list of whole numbers are equal."""
    return torch.eq(values[:, None], values[None, :])


def dual_encoder(model: Classifier) -> ZeroShotNetwork:
    """The dual encoder in a classifier; other classifiers have no text tower to train."""
    if not isinstance(model.network, ZeroShotNetwork):
        raise UserError(
            f"{model.origin.source} is no dual encoder: contrastive training needs a text tower.",
            hint="Give a CLIP or SigLIP folder or id.",
        )
    return model.network
