"""Several oracles as one: by vote, by their mean, or only where they agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn

from stockpot.dynamic.oracle import Oracle, Setting
from stockpot.dynamic.oracles import oracles
from stockpot.errors import BadParameterError
from stockpot.types import Reference

Combine = Literal["vote", "margin", "abstain"]


class EnsembleOracle:
    """Members that are asked together."""

    def __init__(self, members: Sequence[Oracle], combine: Combine) -> None:
        self.members = tuple(members)
        self.combine = combine
        self.name = f"{combine}({', '.join(member.name for member in members)})"

    @property
    def networks(self) -> Sequence[nn.Module]:
        """All members' networks."""
        return [network for member in self.members for network in member.networks]

    def judge(self, pixels: Tensor) -> Tensor:
        """Shares of votes, mean probabilities, or these only where all name one class."""
        judged = torch.stack([member.judge(pixels) for member in self.members])
        abstained = judged.amax(dim=2) == 0
        votes = torch.zeros_like(judged).scatter_(2, judged.argmax(dim=2, keepdim=True), 1.0)
        votes = votes.masked_fill(abstained[:, :, None], 0.0).mean(dim=0)
        if self.combine == "vote":
            return votes
        mean = judged.mean(dim=0)
        if self.combine == "margin":
            return mean
        agreed = votes.amax(dim=1, keepdim=True) == 1
        return torch.where(agreed, mean, torch.zeros_like(mean))


@oracles.register("ensemble")
def ensemble(
    setting: Setting,
    *,
    members: Annotated[list[dict[str, Any]], Reference("oracles")],
    combine: Combine = "abstain",
) -> Oracle:
    """Several oracles together, which no single blind spot decides.

    Args:
        members: each `{oracle: NAME, ...its parameters}`.
        combine: `vote` counts votes (ties go to the class of lower number), `margin` averages
            probabilities, `abstain` judges only where all members name the same class.
    """
    if len(members) < 2:
        raise BadParameterError(f"ensemble: expected at least two members, got {len(members)}.")
    made = []
    for member in members:
        if "oracle" not in member:
            raise BadParameterError(f"ensemble: a member needs the key oracle, got {member!r}.")
        params = {key: value for key, value in member.items() if key != "oracle"}
        made.append(oracles.get(str(member["oracle"]))(setting, **params))
    return EnsembleOracle(made, combine)
