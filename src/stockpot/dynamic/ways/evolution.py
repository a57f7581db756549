"""Where to step when nothing but the model's answers can be asked: evolution strategies.

Pairs of opposite random moves in the latents are tried, and the difference that each makes to the
margin tells the slope (antithetic sampling, arXiv:1703.03864). No gradient of the model is needed,
nor of the generator. Where all moves look alike the climb walks at random, and may leave the plain.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.attack.draws import normal
from stockpot.dynamic.ways.way import Look, Model, Spot, margin
from stockpot.score.predictions import predictions

_PLACE = 0x45564F  # tells these draws from those of other users of a seed
_REACHES = (1.0, 2.0, 4.0, 8.0)
"""Steps; how far trials lie from where the climb stands, in turn: a plain ends somewhere."""
_FEW = 256
"""Latents up to which the slope is solved for."""


class Evolution:
    """Finds each step from the answers to pairs of trials."""

    name = "evolution"

    def __init__(self, pairs: int = 25, draws: int = 1) -> None:
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
        """The slope that the trials' gains over their opposites speak for."""
        noises, gains = [], []
        for pair in range(self.pairs):
            noise = normal(spot.seeds, spot.latents.shape[1:], _PLACE, spot.turn + 1, pair)
            reach = spot.step * _REACHES[pair % len(_REACHES)]
            up, down = (spot.climbed(spot.latents + sign * reach * noise) for sign in (1, -1))
            gains.append(torch.nan_to_num((up - down) / reach, 0, 0, 0))
            noises.append(noise.flatten(1))
        trials, gain = torch.stack(noises, dim=1), torch.stack(gains, dim=1)[:, :, None]
        if trials.shape[2] <= _FEW:
            # Few directions are not at right angles; the slope is what explains all gains best.
            found = torch.linalg.pinv(trials, rtol=1e-3) @ gain
        else:
            found = trials.transpose(1, 2) @ gain
        plain = (gain == 0).all(dim=1, keepdim=True)
        found = torch.where(plain, trials.sum(dim=1)[:, :, None], found)
        return found.view_as(spot.latents)
