"""Attacks beside a stream: on the model as it was given, and as the stream has left it.

A model that adapts cannot be searched while it does: every look would change it. So the attack sees
it held still, with the weights and the statistics that the last batch has left.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from stockpot.attack.scored import attack_scored
from stockpot.attack.threat import Threat
from stockpot.defend.adapt.adapting import Adapting
from stockpot.measure.measurement import proportion
from stockpot.measure.stream.answers import Condition
from stockpot.models.classifier import Classifier
from stockpot.models.shipped.answers import only_asked
from stockpot.results.schema import Score
from stockpot.score.scorer import Scorer

_STRIDE = 1 << 32
SQUARES = 500
"""Queries of the random search on a model that gives no gradients."""


def subjects(model: Classifier) -> dict[str, Classifier]:
    """Whom an attack sees, by what results call it; a model that adapts begins anew."""
    if not isinstance(model, Adapting):
        return {"static": model}
    adapted = model.held()
    model.reset()
    return {"static": model.held(), "adapted": adapted}


def attacked_scores(
    model: Classifier,
    pixels: Tensor,
    scorer: Scorer,
    rows: Tensor,
    aim: Threat,
    seed: int,
    said: Condition,
) -> list[Score]:
    """Accuracy on some pictures, as they are and under attack, of everyone whom it sees."""
    scores = []
    shown, seeds = pixels.float() / 255, (rows + seed * _STRIDE).tolist()
    search: dict[str, Any] = {}
    if only_asked(model):
        search = {"method": "square", "steps": SQUARES}
        said = {**said, "attack": f"square-{SQUARES}"}
    for name, subject in subjects(model).items():
        with torch.inference_mode(False), torch.enable_grad():
            found = attack_scored(
                subject,
                shown.clone(),
                scorer,
                rows,
                norm=aim.norm,
                eps=aim.eps,
                seed=seeds,
                **search,
            )
        before, after = found.correct.cpu().numpy(), found.robust.cpu().numpy()
        radius: Condition = {"norm": aim.norm, "eps": aim.eps}
        scores.append(proportion(f"{name}_accuracy", before, said))
        scores.append(proportion(f"{name}_robust_accuracy", after, {**said, **radius}))
    return scores
