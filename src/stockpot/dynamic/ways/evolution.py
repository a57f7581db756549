"""Where to step when nothing but the model's answers can be asked: evolution strategies.

Pairs of opposite random moves in the latents are tried, and their difference in the margin weighs
each (antithetic sampling, arXiv:1703.03864). No gradient of the model is needed, nor of the
generator. Where all moves look alike the climb walks at random, and may leave the plain.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.attack.draws import normal
from stockpot.dynamic.ways.way import Look, Model, Spot, margin
from stockpot.score.predictions import predictions

_PLACE = 0x45564F  # tells these draws from those of other users of a seed
_REACH = 2.0  # steps; how far a trial lies from where the climb stands


class Evolution:
    """Finds each step from the answers to pairs of trials."""

    name = "evolution"

    def __init__(self, pairs: int = 10, draws: int = 1) -> None:
        self.pairs = pairs
        self.passes = draws
        self.probes = 2 * pairs * draws

    @torch.no_grad()
    def look(self, model: Model, pixels: Tensor, targets: Tensor, labels: Tensor) -> Look:
        """The margin is climbed, whatever the scale of the logits."""
        logits = torch.stack([model(pixels).float() for _ in range(self.passes)]).mean(dim=0)
        losses = F.cross_entropy(logits, targets, reduction="none")
        return Look(losses, predictions(logits) != targets, margin(logits, targets))

    @torch.no_grad()
    def blind(self, spot: Spot) -> Tensor | None:
        """The mean of the trials, each weighed by how much it gains over its opposite."""
        shape = spot.latents.shape[1:]
        found = torch.zeros_like(spot.latents)
        drift = torch.zeros_like(spot.latents)
        for pair in range(self.pairs):
            noise = normal(spot.seeds, shape, _PLACE, spot.turn, pair)
            up, down = (
                spot.climbed(spot.latents + sign * _REACH * spot.step * noise) for sign in (1, -1)
            )
            gain = torch.nan_to_num(up - down, 0, 0, 0).view(-1, *[1] * len(shape))
            found += gain * noise
            drift += noise
        plain = found.flatten(1).abs().amax(dim=1) == 0
        return torch.where(plain.view(-1, *[1] * len(shape)), drift, found)
