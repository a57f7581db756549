"""Oracles that are one network: a zero-shot dual encoder, or any classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from stockpot.dynamic.oracle import Oracle, Setting
from stockpot.dynamic.oracles import oracles
from stockpot.errors import BadDataError, UserError
from stockpot.models.classifier import Classifier
from stockpot.models.load import load_for, takes_classes
from stockpot.score.class_space import match_classes
from stockpot.types import ModelRef

ZOO = "clip-base"
EXPERTS = {
    "cifar10": "clip-cifar10",
    "fashion_mnist": "clip-fashion",
    "icons": "clip-icons",
    "mnist": "clip-mnist",
    "quickdraw": "clip-quickdraw",
}
"""The zoo's dual encoders that were fine-tuned on a dataset, and see its classes best."""


class NetworkOracle:
    """A classifier's probabilities among the data's classes."""

    def __init__(self, classifier: Classifier, setting: Setting, name: str) -> None:
        try:
            self.mapping = match_classes(classifier.classes, setting.classes, "subset")
        except BadDataError as problem:
            raise BadDataError(
                f"the oracle {name} cannot judge this data: {problem.message}",
                hint="Choose an oracle that knows these classes, such as zero_shot.",
            ) from problem
        self.name = name
        self.classifier = classifier.to(setting.device)

    @property
    def networks(self) -> Sequence[nn.Module]:
        """The classifier's network."""
        return (self.classifier.network,)

    def judge(self, pixels: Tensor) -> Tensor:
        """Probabilities, renormalised over the data's classes."""
        with torch.no_grad():
            logits = self.mapping.logits(self.classifier(pixels).float())
        return logits.softmax(dim=1)


def expert_for(data: str) -> str:
    """The zoo's dual encoder that judges a dataset where none is named."""
    return EXPERTS.get(data, ZOO)


@oracles.register("zero_shot", paper="arXiv:2308.10632")
def zero_shot(
    setting: Setting, *, model: ModelRef | None = None, templates: tuple[str, ...] | None = None
) -> Oracle:
    """A dual encoder (CLIP, SigLIP) that is told the data's class names.

    Args:
        model: any CLIP or SigLIP folder or hub id. When left out, the zoo's expert for the data
            (such as `clip-cifar10`), and for data without one `clip-base`; the result names it.
        templates: prompts with {} for the class name; the data's own when left out.
    """
    model = model or expert_for(setting.data)
    if not takes_classes(model):
        raise UserError(
            f"zero_shot: {model} has a head of its own.", hint="Use the oracle classifier for it."
        )
    told = {"templates": templates} if templates else {}
    judge = load_for(model, setting, options=told).eval()
    return NetworkOracle(judge, setting, f"zero_shot({model})")


@oracles.register("classifier")
def classifier(
    setting: Setting, *, model: ModelRef, options: dict[str, Any] | None = None
) -> Oracle:
    """Any classifier that knows the data's classes.

    Args:
        model: as for `load_model`.
        options: its options, such as `weights`.
    """
    judge = load_for(model, setting, options=options).eval()
    return NetworkOracle(judge, setting, f"classifier({model})")
