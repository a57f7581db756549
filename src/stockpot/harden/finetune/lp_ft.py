"""LP-FT: a linear probe first, then fine-tuning from its head (Kumar et al., arXiv:2202.10054).

A head that already fits the frozen features moves them less than one that does not, so features of
pictures outside the training data are distorted less.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadParameterError
from stockpot.harden import hardeners
from stockpot.harden.objective import Objective, Step
from stockpot.harden.probe import Probe, best_probe, probe_path
from stockpot.harden.selection import hold_out
from stockpot.models.classifier import Classifier, evaluating
from stockpot.models.huggingface import last_linear
from stockpot.score.scorer import scorer_for
from stockpot.types import Count, Positive


@hardeners.register(
    "lp_ft",
    paper="arXiv:2202.10054",
    head="trained",
    whole="it fits the head of the whole model first",
)
def lp_ft(*, points: Count = 10, weakest: Positive = 1e-7, strongest: Positive = 1e2) -> Objective:
    """Fit the head on frozen features, choose its regularisation on held-out data, then fine-tune.

    Args:
        points: how many regularisation strengths are tried, from weakest to strongest fit.
        weakest: the smallest C of the path (the largest penalty).
        strongest: the largest C.
    """
    if points < 1 or not 0 < weakest <= strongest:
        raise BadParameterError(
            "lp_ft: expected points >= 1 and 0 < weakest <= strongest, "
            f"got {points}, {weakest} and {strongest}."
        )
    return ProbeFirst(points, weakest, strongest)


@dataclass
class ProbeFirst:
    """The objective: its beginning solves the head, its steps are plain fine-tuning."""

    points: int
    weakest: float
    strongest: float
    probe: Probe | None = None

    def begin(self, model: Classifier, data: Dataset, validation: Dataset | None) -> None:
        """Give the model the head of the best probe."""
        if validation is None:
            data, validation = hold_out(data, 0.1, seed=0)
        features = _features(model, data)
        labels = data.labels.to(model.device)
        right = partial(scorer_for(model.classes, validation).correct, rows=slice(None))
        strengths = np.geomspace(self.weakest, self.strongest, self.points).tolist()
        path = probe_path(features, labels, len(model.classes), strengths=strengths)
        self.probe = best_probe(path, _features(model, validation), right)
        head = last_linear(model.network)
        with torch.no_grad():
            head.weight.copy_(self.probe.weight)
            head.bias.copy_(self.probe.bias)

    def __call__(self, step: Step) -> Tensor:
        return F.cross_entropy(step.model(step.pixels), step.labels)


def _features(model: Classifier, data: Dataset) -> Tensor:
    """What the head reads, for every picture."""
    head = last_linear(model.network)
    seen: list[Tensor] = []

    def keep(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        seen.append(given[0].detach().flatten(1).clone())

    handle = head.register_forward_pre_hook(keep)
    try:
        with evaluating(model):
            for batch in data.batches(512, model.preprocess.fit):
                model(batch.images.to(model.device))
    finally:
        handle.remove()
    return torch.cat(seen)
