"""ZERO: a vote of the sure views (Farina et al., NeurIPS 2024, arXiv:2405.18330).

Of many views of a picture those with the least entropy vote for their best class: marginal
probabilities at temperature zero, in one pass and without a gradient. Made for CLIP; any classifier
can be asked so. Nothing stays of a picture.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from stockpot.defend import defences
from stockpot.defend.adapt.adapting import Adapting
from stockpot.defend.adapt.learner import Learner
from stockpot.defend.adapt.losses import entropy
from stockpot.defend.episodic.crops import crops
from stockpot.models.classifier import Classifier
from stockpot.types import Count, Fraction01

_NO_VOTE = 1e-4
"""The share of a vote that a class without one has, so that its logarithm is a number."""


@defences.register("zero", paper="arXiv:2405.18330", adapts=True)
def zero(model: Classifier, *, views: Count = 64, share: Fraction01 = 0.3) -> Classifier:
    """Let the surest of many random crops of a picture vote.

    Args:
        views: of each picture, itself among them.
        share: of the views that vote, the surest first.
    """
    label = f"zero(views={views}, share={share:g})"
    return Adapting(model, label, lambda inner, chance: _Zero(inner, views, share, chance), None)


class _Zero(Learner):
    def __init__(self, model: Classifier, views: int, share: float, chance: Generator) -> None:
        super().__init__(model)
        self.views, self.share, self.chance = views, share, chance

    @torch.no_grad()
    def __call__(self, pixels: Tensor) -> Tensor:
        pixels = pixels if pixels.is_floating_point() else pixels.float() / 255
        answers = [self.model(crops(each, self.views, self.chance)).float() for each in pixels]
        return torch.stack([voted(logits, self.share) for logits in answers])


def voted(logits: Tensor, share: float) -> Tensor:
    """The logarithms of the shares of votes, from the logits of all views of one picture.

    Where classes have equally many votes, the surest of the other views that is for one of them
    decides, and the surest voter where none is.
    """
    order = entropy(logits).argsort(stable=True)
    best = logits[order].argmax(dim=1)
    count = max(1, int(len(logits) * share))
    votes = torch.bincount(best[:count], minlength=logits.shape[1]).to(logits.dtype)
    level = votes == votes.max()
    if int(level.sum()) > 1:
        others = [*best[count:].tolist(), *best[:count].tolist()]
        votes[next(each for each in others if level[each])] += 1
    if not bool(logits.isfinite().all()):
        return torch.full_like(votes, torch.nan)
    return (votes + _NO_VOTE).log()
