"""One climb of Algorithm 1 for a whole batch: step, decode, ask the oracle, stop at a refusal.

Line by line (arXiv:2308.10632): the first candidate is the generator's plain reconstruction; where
the oracle refuses it, the image is not validated. Then, up to the budget, one step that raises the
loss of the model under test, and the oracle again: an accepted image replaces the last one, a
refused one ends the climb. Images that have ended leave the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.dynamic.generator import Encoded, Generator, PixelClamp, into_box
from stockpot.dynamic.oracle import Oracle, Rule
from stockpot.dynamic.steps import Stepper, StepRule, stepper
from stockpot.dynamic.stopwatch import NoStopwatch, Stopwatch
from stockpot.errors import BadParameterError

Model = Callable[[Tensor], Tensor]
Keep = Literal["last", "best_loss"]
Reading = Literal["trajectory", "reencode"]


@dataclass(frozen=True)
class Rules:
    """How to climb.

    Args:
        budget: candidates per image, the reconstruction included.
        step: the step size in the generator's latents.
        optimiser: how a gradient becomes a step.
        reading: one `trajectory` of latents, or `reencode` each accepted image.
        keep: return the `last` accepted image, as published, or the accepted one of `best_loss`.
        backtrack: how often in a row a refused step is halved before the climb ends.
        accept: when the oracle's judgement stands for the label.
        pixel_clamp: how the gradient meets pixels that were cut to [0, 1].
        precision: `bf16` runs generator, model and oracle in bfloat16.
    """

    budget: int = 50
    step: float = 0.1
    optimiser: StepRule = "adam"
    reading: Reading = "trajectory"
    keep: Keep = "last"
    backtrack: int = 0
    pixel_clamp: PixelClamp = "straight"
    accept: Rule = field(default_factory=lambda: Rule("argmax"))
    precision: Literal["fp32", "bf16"] = "fp32"


@dataclass
class Task:
    """Who takes part: the model under test, the generator, and the oracle (none accepts all)."""

    model: Model
    generator: Generator
    oracle: Oracle | None
    rules: Rules
    mask: Tensor | None = None
    watch: Stopwatch = field(default_factory=NoStopwatch)

    def judge(self, pixels: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Which images are accepted as their label, and with which share."""
        if self.oracle is None:
            every = torch.ones(len(pixels), dtype=torch.bool, device=pixels.device)
            return every, every.float()
        with self.watch.part("oracle"), self.autocast(pixels):
            shares = self.oracle.judge(pixels).float()
        own = shares.gather(1, labels[:, None])[:, 0]
        return self.rules.accept.accepts(shares, labels), own

    def autocast(self, pixels: Tensor) -> torch.autocast:
        """Lower precision where the rules ask for it."""
        half = self.rules.precision == "bf16"
        return torch.autocast(pixels.device.type, torch.bfloat16, enabled=half)

    def decode(self, latents: Tensor, context: Tensor) -> Tensor:
        """The generator's images, in full precision."""
        with self.watch.part("generator"), self.autocast(latents):
            pixels = self.generator.decode(latents, context).float()
        return into_box(pixels, self.rules.pixel_clamp)

    def losses(self, pixels: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The model's loss on each image, and whether it is wrong."""
        with self.watch.part("model"), self.autocast(pixels):
            logits = self.model(pixels).float()
            return F.cross_entropy(logits, targets, reduction="none"), logits.argmax(1) != targets

    def gradient(self, losses: Tensor, latents: Tensor) -> Tensor:
        """Of each image's loss with respect to its own latents."""
        if not losses.requires_grad:
            raise BadParameterError(
                "the model's output has no gradient with respect to its input.",
                hint="Dynamic evaluation needs a differentiable model.",
            )
        with self.watch.part("gradient"):
            (found,) = torch.autograd.grad(losses.sum(), latents, allow_unused=True)
        return torch.zeros_like(latents) if found is None else found.float()


class Climb:
    """What is known of every image of the batch; `images` and the like are those accepted."""

    def __init__(self, encoded: Encoded, shape: Sequence[int]) -> None:
        n, device = len(encoded.latents), encoded.latents.device
        self.latents = encoded.latents.clone()
        self.context = encoded.context
        self.final = encoded.latents.clone()
        self.images = torch.zeros(tuple(shape), device=device)
        self.loss = torch.full((n,), -torch.inf, device=device)
        self.confidence = torch.zeros(n, device=device)
        self.accepted = torch.zeros(n, dtype=torch.long, device=device)
        self.fooled_at = torch.full((n,), -1, dtype=torch.long, device=device)
        self.flips = torch.zeros(n, device=device)
        self._last_good = encoded.latents.clone()
        self._scale = torch.ones(n, device=device)
        self._refused = torch.zeros(n, dtype=torch.long, device=device)

    def run(self, task: Task, targets: Tensor, labels: Tensor, seeds: Tensor) -> None:
        """Climb until every image has been refused or the budget is spent."""
        rules = task.rules
        steps = stepper(rules.optimiser, self.latents)
        codes = task.generator.codes(self.latents)
        if codes is None:
            self.flips.fill_(torch.nan)
        active = torch.arange(len(self.latents), device=self.latents.device)
        for turn in range(rules.budget):
            latents = self.latents[active].requires_grad_(True)
            is_last = turn + 1 == rules.budget
            with torch.set_grad_enabled(not is_last and rules.reading == "trajectory"):
                pixels = task.decode(latents, self.context[active])
            accepted, confidence = task.judge(pixels.detach(), labels[active])
            rows = active[accepted]
            if len(rows):
                if len(rows) < len(active):
                    pixels, confidence = pixels[accepted], confidence[accepted]
                with torch.set_grad_enabled(pixels.requires_grad):
                    losses, wrong = task.losses(pixels, targets[rows])
                self._accept(turn, rows, pixels.detach(), losses.detach(), wrong, confidence, rules)
                if codes is not None:
                    codes = self._count_flips(task, codes, rows)
                if not is_last:
                    if rules.reading == "reencode":
                        latents, losses = self._reencode(task, pixels, rows, targets, seeds)
                        gradient = task.gradient(losses, latents)
                    else:
                        gradient = task.gradient(losses, latents)[accepted]
                    self._step(task, steps, gradient, rows)
            retry = self._refuse(turn, active[~accepted], rules)
            active = torch.cat([rows, retry])
            if not len(active):
                break

    def _accept(
        self,
        turn: int,
        rows: Tensor,
        pixels: Tensor,
        losses: Tensor,
        wrong: Tensor,
        confidence: Tensor,
        rules: Rules,
    ) -> None:
        self.accepted[rows] += 1
        self._refused[rows] = 0
        self._last_good[rows] = self.latents[rows]
        first = wrong & (self.fooled_at[rows] < 0)
        self.fooled_at[rows[first]] = turn
        if rules.keep == "best_loss":
            better = losses > self.loss[rows]
            rows, pixels, losses = rows[better], pixels[better], losses[better]
            confidence = confidence[better]
        self.images[rows] = pixels
        self.loss[rows] = losses
        self.confidence[rows] = confidence
        self.final[rows] = self.latents[rows]

    def _refuse(self, turn: int, rows: Tensor, rules: Rules) -> Tensor:
        """Halve the refused step where tries are left; the others leave the batch."""
        self._refused[rows] += 1
        if turn == 0 or not rules.backtrack:
            return rows[:0]
        again = rows[self._refused[rows] <= rules.backtrack]
        self.latents[again] = (self.latents[again] + self._last_good[again]) / 2
        self._scale[again] /= 2
        return again

    def _step(self, task: Task, steps: Stepper, gradient: Tensor, rows: Tensor) -> None:
        move = steps.move(gradient, rows)
        if task.mask is not None:
            move = move * task.mask
        size = task.rules.step * self._scale[rows].view(-1, *[1] * (move.ndim - 1))
        self.latents[rows] = task.generator.clamp(self.latents[rows] + size * move)

    def _reencode(
        self, task: Task, pixels: Tensor, rows: Tensor, targets: Tensor, seeds: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Encode what was accepted just now and take the loss of its reconstruction."""
        with torch.no_grad(), task.watch.part("generator"), task.autocast(pixels):
            encoded = task.generator.encode(pixels, seeds[rows])
        self.latents[rows] = self._last_good[rows] = encoded.latents.float()
        self.context = self.context.clone()
        self.context[rows] = encoded.context
        with torch.enable_grad():
            latents = self.latents[rows].requires_grad_(True)
            losses, _ = task.losses(task.decode(latents, self.context[rows]), targets[rows])
        return latents, losses

    def _count_flips(self, task: Task, codes: Tensor, rows: Tensor) -> Tensor:
        """Add the share of cells whose code differs from that of the last accepted latents."""
        now = task.generator.codes(self.latents[rows])
        if now is not None:
            self.flips[rows] += (now != codes[rows]).flatten(1).float().mean(dim=1)
            codes[rows] = now
        return codes
