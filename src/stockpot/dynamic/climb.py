"""One climb of Algorithm 1 for a whole batch: step, decode, ask the oracle, stop at a refusal.

Line by line (arXiv:2308.10632): the first candidate is the generator's plain reconstruction, or in
the other reading the first perturbation; where the oracle refuses it, the image is not validated.
Then, up to the budget, one step that raises the loss of the model under test, and the oracle again:
an accepted image replaces the last one, a refused one ends the climb. Images that have ended leave
the batch. Every candidate is the picture of 8 bits that would be saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stockpot.dynamic.generator import Encoded
from stockpot.dynamic.steps import Stepper, stepper
from stockpot.dynamic.task import Rules, Task
from stockpot.dynamic.ways.way import Look, Spot

# A batch takes at most so many sizes on its way to empty. Every new size costs a GPU the choice of
# its convolutions, which takes longer than computing a few images in vain; so an image that has
# ended stays until a sixteenth of the batch has, and batches of up to 16 shrink one by one.
_SIZES = 16
FAINT = 1e-8
"""The largest entry of a slope below which Adam's steps, which add this much, lose their size."""
_KNOWN = (
    "images",
    "loss",
    "confidence",
    "accepted",
    "asked",
    "model_queries",
    "reconstructed",
    "perturbed",
    "fooled_at",
    "flips",
    "zero",
    "faint",
    "recognised",
    "final",
)
"""What a climb writes down of every image."""


class Climb:
    """What is known of every image of the batch; `images` and the like are those accepted."""

    def __init__(self, encoded: Encoded, shape: Sequence[int]) -> None:
        n, device = len(encoded.latents), encoded.latents.device
        self.start = encoded
        self.final = encoded.latents.clone()
        self.images = torch.zeros(tuple(shape), device=device)
        self.loss = torch.full((n,), -torch.inf, device=device)
        self.confidence = torch.zeros(n, device=device)
        self.accepted = torch.zeros(n, dtype=torch.long, device=device)
        self.asked = torch.zeros(n, dtype=torch.long, device=device)
        self.model_queries = torch.zeros(n, dtype=torch.long, device=device)
        self.reconstructed = torch.zeros(n, dtype=torch.bool, device=device)
        self.perturbed = torch.zeros(n, dtype=torch.bool, device=device)
        self.fooled_at = torch.full((n,), -1, dtype=torch.long, device=device)
        self.flips = torch.zeros(n, device=device)
        self.zero = torch.zeros(n, dtype=torch.bool, device=device)
        self.faint = torch.zeros(n, dtype=torch.bool, device=device)
        self.recognised = torch.zeros(n, dtype=torch.bool, device=device)

    def run(self, task: Task, targets: Tensor, labels: Tensor, seeds: Tensor) -> None:
        """Climb until every image has been refused or the budget is spent."""
        rules = task.rules
        n = len(targets)
        codes = task.generator.codes(self.start.latents)
        steps = stepper(rules.optimiser, self.start.latents)
        team = _Team(
            rows=torch.arange(n, device=targets.device),
            live=torch.ones(n, dtype=torch.bool, device=targets.device),
            latents=self.start.latents,
            context=self.start.context,
            targets=targets,
            labels=labels,
            seeds=seeds,
            codes=codes,
            images=self.images,
            loss=self.loss,
            confidence=self.confidence,
            accepted=self.accepted,
            asked=self.asked,
            model_queries=self.model_queries,
            reconstructed=self.reconstructed,
            perturbed=self.perturbed,
            fooled_at=self.fooled_at,
            flips=self.flips if codes is not None else torch.full_like(self.flips, torch.nan),
            zero=self.zero,
            faint=self.faint,
            recognised=self.recognised,
            final=self.final,
            last_good=self.start.latents,
            scale=torch.ones(n, device=targets.device),
            refused=torch.zeros(n, dtype=torch.long, device=targets.device),
        )
        if rules.first == "perturbation":
            _unseen_step(team, task, steps)
        for turn in range(rules.budget):
            _turn(team, task, steps, turn)
            live = int(team.live.sum())  # the only wait for the device in a turn
            if not live:
                break
            grain = -(-n // _SIZES)
            size = -(-live // grain) * grain
            if size < len(team.rows):
                self._collect(team)
                kept = team.live.to(torch.uint8).argsort(descending=True, stable=True)[:size]
                team = team.take(kept)
                steps.keep(kept)
        self._collect(team)

    def _collect(self, team: _Team) -> None:
        """Write down what is known of the images that were in the batch until now."""
        for name in _KNOWN:
            known = getattr(team, name)
            if len(known) == len(self.loss):
                setattr(self, name, known)
            else:
                getattr(self, name)[team.rows] = known


@dataclass
class _Team:
    """The images that are still climbing, and a few that have ended; one row each."""

    rows: Tensor
    """Their places in the whole batch."""
    live: Tensor
    latents: Tensor
    context: Tensor
    targets: Tensor
    labels: Tensor
    seeds: Tensor
    codes: Tensor | None
    images: Tensor
    loss: Tensor
    confidence: Tensor
    accepted: Tensor
    asked: Tensor
    """How often the oracle was asked about each image."""
    model_queries: Tensor
    """How often the model answered to it."""
    reconstructed: Tensor
    perturbed: Tensor
    """Whether the oracle accepts the reconstruction, and the first perturbation."""
    fooled_at: Tensor
    flips: Tensor
    zero: Tensor
    """Whether a step found no slope at all while the model was right."""
    faint: Tensor
    """Whether one found a slope too small for a step of full size."""
    recognised: Tensor
    """Whether the model is right about the plain reconstruction."""
    final: Tensor
    last_good: Tensor
    scale: Tensor
    refused: Tensor

    def take(self, rows: Tensor) -> _Team:
        """Some of the images."""
        chosen: dict[str, Any] = {
            name: None if known is None else known[rows] for name, known in vars(self).items()
        }
        return _Team(**chosen)


def _unseen_step(team: _Team, task: Task, steps: Stepper) -> None:
    """Step on from the reconstruction; the oracle's word on it is written down and ends nothing."""
    latents = team.latents.detach().requires_grad_(True)
    with torch.enable_grad():
        pixels = task.decode(latents, team.context)
        seen = task.look(pixels, team.targets, team.labels)
    team.reconstructed, _ = task.judge(pixels.detach(), team.labels)
    team.recognised = ~seen.wrong
    gradient = _uphill(team, task, seen, pixels, latents, -1, team.live)
    team.latents = _moved(team, task, steps, gradient, team.live)
    team.asked = team.asked + 1
    team.model_queries = team.model_queries + task.way.passes


def _turn(team: _Team, task: Task, steps: Stepper, turn: int) -> None:
    """One candidate of every image: make it, have it judged, and step on from it."""
    rules = task.rules
    is_last = turn + 1 == rules.budget
    latents = team.latents.detach().requires_grad_(not is_last)
    with torch.set_grad_enabled(not is_last and rules.reading == "trajectory"):
        pixels = task.decode(latents, team.context)
        verdict, confidence = task.judge(pixels.detach(), team.labels)
        seen = task.look(pixels, team.targets, team.labels)
    accepted = verdict & team.live
    # Images that have ended stay in the batch for a while; nobody asks about them any more.
    team.asked = team.asked + team.live
    team.model_queries = team.model_queries + task.way.passes * team.live
    if turn == 0 and rules.unmoved:
        team.reconstructed = accepted
        team.recognised = ~seen.wrong
    elif turn == rules.unmoved:
        team.perturbed = accepted
    _accept(team, turn, accepted, pixels.detach(), seen, confidence, rules)
    if team.codes is not None:
        _count_flips(team, task, team.codes, accepted)
    moved = team.latents
    if not is_last:
        if rules.reading == "reencode":
            team.model_queries = team.model_queries + task.way.passes * accepted
            latents, pixels, seen = _reencode(team, task, pixels.detach(), accepted)
        gradient = _uphill(team, task, seen, pixels, latents, turn, accepted)
        moved = _moved(team, task, steps, gradient, accepted)
    retry = team.live & ~accepted
    if turn == 0 or not rules.backtrack:
        team.latents, team.live = moved, accepted
        return
    # Halve the refused step where tries are left; the others have ended.
    team.refused = team.refused + retry
    retry &= team.refused <= rules.backtrack
    back = (team.latents + team.last_good) / 2
    team.latents = _where(retry, back, moved)
    team.scale = torch.where(retry, team.scale / 2, team.scale)
    team.live = accepted | retry


def _accept(
    team: _Team,
    turn: int,
    accepted: Tensor,
    pixels: Tensor,
    seen: Look,
    confidence: Tensor,
    rules: Rules,
) -> None:
    losses, wrong = seen.losses.detach(), seen.wrong
    team.accepted = team.accepted + accepted
    team.fooled_at = team.fooled_at.masked_fill(accepted & wrong & (team.fooled_at < 0), turn)
    if rules.backtrack:
        team.refused = team.refused.masked_fill(accepted, 0)
        team.last_good = _where(accepted, team.latents, team.last_good)
    taken = accepted & (losses > team.loss) if rules.keep == "best_loss" else accepted
    team.images = _where(taken, pixels, team.images)
    team.loss = torch.where(taken, losses, team.loss)
    team.confidence = torch.where(taken, confidence, team.confidence)
    team.final = _where(taken, team.latents, team.final)


def _moved(team: _Team, task: Task, steps: Stepper, gradient: Tensor, accepted: Tensor) -> Tensor:
    """The latents after a step from every accepted image."""
    move = steps.move(gradient, accepted)
    if task.mask is not None:
        move = move * task.mask
    size = task.rules.step * team.scale.view(-1, *[1] * (move.ndim - 1))
    return _where(accepted, task.generator.clamp(team.latents + size * move), team.latents)


def _uphill(
    team: _Team,
    task: Task,
    seen: Look,
    pixels: Tensor,
    latents: Tensor,
    turn: int,
    taken: Tensor,
) -> Tensor:
    """Where the next step goes, by the way of the task; notes where there was nothing to follow."""

    def climbed(others: Tensor) -> Tensor:
        moved = task.decode(task.generator.clamp(others), team.context)
        return task.look(moved, team.targets, team.labels).climbed

    spot = Spot(latents.detach(), team.seeds, turn, task.rules.step, climbed)
    found = task.way.blind(spot)
    team.model_queries = team.model_queries + task.way.probes * taken
    gradient = task.gradient(seen.climbed, pixels, latents) if found is None else found
    size = gradient.flatten(1).abs().amax(dim=1)
    hidden = taken & ~seen.wrong
    team.zero = team.zero | (hidden & (size == 0))
    team.faint = team.faint | (hidden & (size > 0) & (size < FAINT))
    return gradient


def _reencode(
    team: _Team, task: Task, pixels: Tensor, accepted: Tensor
) -> tuple[Tensor, Tensor, Look]:
    """Encode what was accepted just now: its latents, its reconstruction, and the look at that."""
    encoded = task.encode(pixels, team.seeds)
    team.latents = _where(accepted, encoded.latents, team.latents)
    team.last_good = _where(accepted, team.latents, team.last_good)
    team.context = _where(accepted, encoded.context, team.context)
    with torch.enable_grad():
        latents = team.latents.detach().requires_grad_(True)
        pixels = task.decode(latents, team.context)
        seen = task.look(pixels, team.targets, team.labels)
    return latents, pixels, seen


def _count_flips(team: _Team, task: Task, codes: Tensor, accepted: Tensor) -> None:
    """Add the share of cells whose code differs from that of the last accepted latents."""
    now = task.generator.codes(team.latents)
    if now is not None:
        share = (now != codes).flatten(1).float().mean(dim=1)
        team.flips = team.flips + share * accepted
        team.codes = _where(accepted, now, codes)


def _where(rows: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    """Whole images by a flag each."""
    return torch.where(rows.view(-1, *[1] * (yes.ndim - 1)), yes, no)
