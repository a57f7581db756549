"""Attacks under several threats, in which balls of one norm lie inside one another.

What fell in a ball has fallen in every larger one of its norm: there the attack is on those that
stand. So a curve over radii costs little more than its smallest radius, and never rises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from stockpot.attack.checks.flags import Flags
from stockpot.attack.run import AttackResult, attack, image_seeds
from stockpot.attack.task import Goal
from stockpot.attack.threat import Threat, Threats
from stockpot.models.forward.folding import Model

Search = Callable[[Threat, Tensor], AttackResult]
"""An attack under one threat on some of the images, by their places."""


def attack_all(
    model: Model,
    images: Tensor,
    labels: Tensor,
    threats: Threats,
    *,
    seed: int | Sequence[int] = 0,
    goal: Goal = "accuracy",
    **params: Any,
) -> tuple[dict[Threat, AttackResult], Tensor]:
    """Attack under every member of a union; the mask says who withstood them all."""
    seeds, places = image_seeds(seed, images), torch.arange(len(images), device=images.device)

    def search(member: Threat, some: Tensor) -> AttackResult:
        return attack(
            model, images[some], labels[some.to(labels.device)], norm=member.norm, eps=member.eps,
            seed=seeds[some].tolist(), goal=goal, **params,
        )  # fmt: skip

    if goal == "loss":  # a fallen image has a higher loss yet in a larger ball
        results = {member: search(member, places) for member in threats.members}
    else:
        results = attack_each(threats, places, search)
    masks = torch.stack([result.robust for result in results.values()])
    return results, masks.all(dim=0)


def attack_each(threats: Threats, places: Tensor, search: Search) -> dict[Threat, AttackResult]:
    """What a search finds under each threat, in the order of the threats.

    Args:
        threats: of any norms; those of one norm are searched from the smallest radius on.
        places: of all images, on their device.
        search: for the images that are left wrong, as for `goal="accuracy"`.
    """
    found: dict[Threat, AttackResult] = {}
    largest: dict[str, AttackResult] = {}
    for member in _outward(threats):
        inner = largest.get(member.norm)
        result = search(member, places) if inner is None else _beyond(inner, member, search)
        found[member] = largest[member.norm] = result
    return {member: found[member] for member in threats.members}


def _outward(threats: Threats) -> list[Threat]:
    """Norms in the order in which they are first named, radii of each from the smallest on."""
    norms = list(dict.fromkeys(member.norm for member in threats.members))
    return sorted(threats.members, key=lambda each: (norms.index(each.norm), each.radius))


def _beyond(inner: AttackResult, member: Threat, search: Search) -> AttackResult:
    """The result in a ball, given that in one inside of it."""
    left = inner.robust.nonzero()[:, 0]
    known = replace(
        inner, queries=torch.zeros_like(inner.queries), saved=0, flags=Flags(), stages={}
    )
    if not len(left):
        return known
    new = search(member, left)
    whole = {}
    for name in ("images", "robust", "loss", "queries"):
        whole[name] = getattr(known, name).clone()
        whole[name][left] = getattr(new, name)
    stages = {}
    for name, standing in new.stages.items():
        stages[name] = torch.zeros_like(inner.robust)
        stages[name][left] = standing
    return replace(known, **whole, saved=new.saved, flags=new.flags, stages=stages)
