"""Attacks against one another: the one that should be stronger must not lose to the weaker."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor

from stockpot.attack.losses import cross_entropy
from stockpot.attack.straight_through import straight_through
from stockpot.attack.threat import Threat
from stockpot.audit.judgement import judged
from stockpot.audit.probes import (
    FACTORS,
    Images,
    Plan,
    Probe,
    far_end,
    gradient,
    noise,
    on_those_left,
    one_level,
    scaled,
)
from stockpot.audit.subject import Subject
from stockpot.models.forward.folding import Model
from stockpot.results.schema import Finding
from stockpot.score.predictions import predictions

_DROP, _SHARE = 0.1, 0.1
"""A loss has fallen when it is lower by this many nats and this share of itself."""


@dataclass(frozen=True)
class Point:
    """One attack of a curve, on the images that are right as they are."""

    eps: float
    steps: int
    standing: int
    """Images that withstood it."""
    loss: float | None = None
    """The mean of the highest cross-entropy found; none where losses were not compared."""


@dataclass(frozen=True)
class Claim:
    """What is audited, and with what."""

    ball: Threat
    plan: Plan
    twin: Model | None = None


@dataclass
class Trial:
    """All attacks of an audit on the images that the model is right about."""

    subject: Subject
    asked: Images
    claim: Claim
    by_eps: list[Point] = field(default_factory=list)
    by_steps: list[Point] = field(default_factory=list)
    robust: Tensor = field(init=False)
    """Who has withstood every attack within the radius so far."""
    worst: Tensor = field(init=False)
    """Images that an attack has looked at near the original, for a model with a memory."""

    def run(self, *, blind: bool) -> list[Finding]:
        """All comparisons; `blind` says that gradients were found wanting."""
        plan, ball = self.claim.plan, self.claim.ball
        curve = self._curve()
        near = curve[FACTORS.index(1.0)]
        self.worst = near.images
        ce, white = self._white_box(near)
        self.robust = white.clone()
        shaken = self._also(noise(self.subject, self.asked, ball), white)
        return [
            self._against("more_steps", ~near.standing & ce,
                          f"{plan.few} steps felled what withstood {plan.many}"),
            *self._radii(curve),
            self._against("noise_is_weaker", shaken,
                          "random noise felled what withstood gradients"),
            self._against("one_level", ~one_level(self.subject, self.asked), "a change of one "
                          "grey level, too small to see, felled the image: it was learnt by heart"),
            *self._other_ways(white, blind),
        ]  # fmt: skip

    def _against(self, name: str, images: Tensor, words: str) -> Finding:
        return judged(name, int(images.sum()), len(self.asked), words)

    def _also(self, standing: Tensor, white: Tensor) -> Tensor:
        """Who fell to another way although it had withstood gradients."""
        self.robust &= standing
        return white & ~standing

    def _curve(self) -> list[Probe]:
        """The same short attack at growing radii; the last holds plain grey."""
        few, asked = self.claim.plan.few, self.asked
        logits = self.subject.logits(asked.pixels)
        losses = cross_entropy(logits, asked.labels)
        self._note(0.0, few, torch.ones_like(losses, dtype=torch.bool), losses)
        balls = [scaled(self.claim.ball, factor) for factor in FACTORS]
        balls.append(far_end(self.claim.ball, asked.pixels.shape[1:]))
        found = []
        for ball in balls:
            probe = gradient(self.subject, asked, ball, steps=few, goal="loss")
            found.append(probe)
            self._note(ball.radius, few, probe.standing, probe.loss)
        return found

    def _note(self, eps: float, steps: int, standing: Tensor, losses: Tensor) -> None:
        real = losses[losses.isfinite()]
        mean = float(real.double().mean()) if len(real) else None
        self.by_eps.append(Point(eps, steps, int(standing.sum()), mean))

    def _white_box(self, near: Probe) -> tuple[Tensor, Tensor]:
        """The long attacks by cross-entropy and by a loss that no scale of logits can hide."""
        asked, ball, plan = self.asked, self.claim.ball, self.claim.plan
        lengths = sorted({1, max(1, plan.few // 3)})
        short = {
            steps: gradient(self.subject, asked, ball, steps=steps).standing for steps in lengths
        }
        ce = gradient(self.subject, asked, ball, steps=plan.many).standing
        self.by_steps = [
            Point(ball.radius, steps, int(standing.sum()))
            for steps, standing in {**short, plan.few: near.standing, plan.many: ce}.items()
        ]
        left = ce & near.standing
        return ce, on_those_left(self.subject, asked, left, ball, steps=plan.many, loss="dlr")

    def _radii(self, curve: list[Probe]) -> list[Finding]:
        n = len(self.asked)
        fallen = torch.zeros(n, dtype=torch.bool, device=self.asked.pixels.device)
        stood_up, dropped = fallen.clone(), fallen.clone()
        for smaller, larger in pairwise(curve):
            fallen |= ~smaller.standing
            stood_up |= fallen & larger.standing
        # How high the loss of a fallen image is, is a matter of steps; and at the far end all fall.
        for smaller, larger in pairwise(curve[:-1]):
            lost = smaller.loss - larger.loss
            dropped |= (lost > _DROP + _SHARE * smaller.loss.abs()) & larger.standing
        far = far_end(self.claim.ball, self.asked.pixels.shape[1:])
        left = on_those_left(
            self.subject,
            self.asked,
            curve[-1].standing,
            far,
            steps=self.claim.plan.many,
            loss="dlr",
        )
        return [
            self._against("larger_eps", stood_up, "a smaller radius felled what a larger did not"),
            self._against("loss_rises", dropped, "the highest loss found for an image that stands "
                          "fell as the radius grew"),
            self._against("far_end", left, f"images stand at {far}, where every picture can become "
                          "plain grey and nothing is left to see"),
        ]  # fmt: skip

    def _other_ways(self, white: Tensor, blind: bool) -> list[Finding]:
        """Searches that do without the model's gradients, on what withstood those with them."""
        asked, ball, plan = self.asked, self.claim.ball, self.claim.plan
        ways = [
            (
                "black_box",
                on_those_left(self.subject, asked, white, ball, method="square",
                              steps=plan.queries),
                f"random search with {plan.queries} queries felled what withstood gradients",
            )
        ]  # fmt: skip
        if blind:
            model, left = straight_through(self.subject), white
            for loss in ("ce", "dlr"):
                left = on_those_left(model, asked, left, ball, steps=plan.many, loss=loss)
            ways.append((
                "straight_through",
                left,
                "gradients felled what withstood them, once rounding, squashing and detaching "
                "passed them on",
            ))  # fmt: skip
        if self.claim.twin is not None:
            found = gradient(self.claim.twin, asked, ball, steps=plan.few, goal="loss")
            right = predictions(self.subject.logits(found.images)) == asked.labels
            words = "images found on the twin felled what withstood the model's own gradients"
            ways.append(("twin", right, words))
        return [
            self._against(name, self._also(standing, white), words)
            for name, standing, words in ways
        ]
