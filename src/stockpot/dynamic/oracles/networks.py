"""Oracles that are one network: a zero-shot dual encoder, or any classifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stockpot.datasets.natural.classes import plain, worded
from stockpot.datasets.words.conventions import words_of
from stockpot.datasets.words.words import plain_words
from stockpot.dynamic.oracle import Oracle, Setting
from stockpot.dynamic.oracles import oracles
from stockpot.errors import BadDataError, UserError
from stockpot.models.classifier import Classifier, seeing_all
from stockpot.models.forward import first_token
from stockpot.models.load import load_for, takes_classes
from stockpot.score.class_space import ClassMap, match_classes
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
        shown = seeing_all(classifier) if setting.cropped else classifier
        self.classifier = shown.to(setting.device)
        self.setting = setting
        self.rivals = _rivals(classifier.classes, self.mapping, setting)

    @property
    def networks(self) -> Sequence[nn.Module]:
        """The classifier's network."""
        return (self.classifier.network,)

    @property
    def vocabulary(self) -> int:
        """Among how many classes it chooses."""
        return len(self.setting.classes) + len(self.rivals)

    def judge(self, pixels: Tensor) -> Tensor:
        """Probabilities, renormalised over the classes that it chooses among."""
        with torch.no_grad():
            outputs = self._answers(pixels).float()
            if self.mapping.combine == "mean":
                outputs = outputs.log_softmax(dim=1)
            own = self.mapping.logits(outputs)
            if self.setting.offered == "data":
                return own.softmax(dim=1)
            shares = torch.cat([own, outputs[:, self.rivals]], dim=1).softmax(dim=1)
        count = own.shape[1]
        best = F.pad(shares[:, count:], (0, 1)).amax(dim=1, keepdim=True)
        return torch.cat([shares[:, :count], best], dim=1)

    def _answers(self, pixels: Tensor) -> Tensor:
        """What the classifier says, by what its answer is made of where that is known."""
        if pixels.device.type == "cpu" and first_token.is_known(self.classifier):
            return first_token.answers(self.classifier, pixels)
        answers: Tensor = self.classifier(pixels)
        return answers


def _rivals(known: tuple[str, ...], mapping: ClassMap, setting: Setting) -> list[int]:
    """The outputs that are offered besides those of the data's classes."""
    if setting.offered == "data":
        return []
    own = {place for group in mapping.groups for place in group} or set(mapping.outputs.tolist())
    others = [place for place in range(len(known)) if place not in own]
    if setting.offered == "all":
        return others
    wanted = {plain(name) for name in worded(setting.rivals)}
    return [place for place in others if plain(worded((known[place],))[0]) in wanted]


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
    # It knows what it is told: beyond the data's classes, those of the model under test.
    known = setting
    if setting.offered != "data" and setting.rivals:
        words = words_of(setting)
        more = plain_words(setting.rivals, words.templates).names
        known = replace(
            setting,
            classes=(*setting.classes, *setting.rivals),
            vocabulary=replace(words, names=(*words.names, *more)),
        )
    judge = load_for(model, known, options=told).eval()
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
