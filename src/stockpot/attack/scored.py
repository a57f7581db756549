"""Attacks on a model that is scored on data: all labels that the data accepts must become wrong."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from stockpot.attack.checks.flags import together
from stockpot.attack.run import AttackResult, attack
from stockpot.models.forward.folding import Model
from stockpot.score.scorer import Scorer
from stockpot.stages import stage


@stage("attack")
def attack_scored(
    model: Model,
    images: Tensor,
    scorer: Scorer,
    rows: Tensor,
    *,
    seed: list[int],
    **params: Any,
) -> AttackResult:
    """Attack some rows of a dataset.

    Images with one right column are attacked together. Those with several are attacked through a
    view in which the best of their accepted labels stands for all; images that accept the same
    labels share it.

    Args:
        model: from pixels to outputs.
        images: the pixels of these rows.
        scorer: what is right for them.
        rows: their numbers in the scorer's data.
        seed: one per image.
        params: as for `attack`.
    """
    parts = scorer.parts(rows)
    found = []
    for part in parts:
        places = part.places.to(images.device)
        targets = part.targets.to(images.device)
        seeds = [seed[place] for place in part.places.tolist()]
        found.append(attack(part.of(model), images[places], targets, seed=seeds, **params))
    if len(parts) == 1:
        return found[0]
    return _joined(found, torch.cat([part.places for part in parts]).to(images.device))


def _joined(found: list[AttackResult], places: Tensor) -> AttackResult:
    order = places.argsort()

    def each(name: str) -> Tensor:
        return torch.cat([getattr(part, name) for part in found])[order]

    stages = {
        name: torch.cat([part.stages.get(name, part.robust) for part in found])[order]
        for name in dict.fromkeys(name for part in found for name in part.stages)
    }
    return AttackResult(
        images=each("images"),
        robust=each("robust"),
        correct=each("correct"),
        loss=each("loss"),
        queries=each("queries"),
        saved=sum(part.saved for part in found),
        flags=together([part.flags for part in found]),
        stages=stages,
    )
