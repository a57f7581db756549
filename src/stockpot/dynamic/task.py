"""Who takes part in a search, and its rules: model, generator, oracle, steps and acceptance."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from stockpot.dynamic.generator import Encoded, Generator, PixelClamp, as_saved, into_box
from stockpot.dynamic.oracle import Oracle, Rule
from stockpot.dynamic.steps import StepRule
from stockpot.dynamic.ways.way import Gradient, Look, Way
from stockpot.score.scorer import Model, merged

Keep = Literal["last", "best_loss"]
Reading = Literal["trajectory", "reencode"]
First = Literal["reconstruction", "perturbation"]


@dataclass(frozen=True)
class Rules:
    """How to climb.

    Args:
        budget: candidates per image, the first included.
        step: the step size in the generator's latents.
        optimiser: how a gradient becomes a step.
        reading: one `trajectory` of latents, or `reencode` each accepted image.
        first: the candidate whose refusal means that an image is not validated: its plain
            `reconstruction`, or the first `perturbation`.
        keep: return the `last` accepted image, as published, or the accepted one of `best_loss`.
        backtrack: how often in a row a refused step is halved before the climb ends.
        accept: when the oracle's judgement stands for the label.
        pixel_clamp: how the gradient meets pixels that were cut to [0, 1].
        precision: `bf16` runs the networks of generator and model in bfloat16.
    """

    budget: int = 50
    step: float = 0.1
    optimiser: StepRule = "adam"
    reading: Reading = "trajectory"
    first: First = "reconstruction"
    keep: Keep = "last"
    backtrack: int = 0
    pixel_clamp: PixelClamp = "straight"
    accept: Rule = field(default_factory=lambda: Rule("argmax"))
    precision: Literal["fp32", "bf16"] = "fp32"

    @property
    def unmoved(self) -> int:
        """How many of the candidates are no perturbations: the reconstruction, where it is one."""
        return int(self.first == "reconstruction")


@dataclass
class Task:
    """Who takes part: the model under test, the generator, and the oracle (none accepts all)."""

    model: Model
    generator: Generator
    oracle: Oracle | None
    rules: Rules
    mask: Tensor | None = None
    accepted: tuple[int, ...] = ()
    """Where the data accepts several classes for the images: all of them, the label first."""
    way: Way = field(default_factory=Gradient)
    """How the climb finds its steps."""

    def judge(self, pixels: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Which images are accepted as their label, and with which share."""
        shares = self.shares(pixels)
        if shares is None:
            every = torch.ones(len(pixels), dtype=torch.bool, device=pixels.device)
            return every, every.float()
        own = shares.gather(1, labels[:, None])[:, 0]
        return self.rules.accept.accepts(shares, labels), own

    def shares(self, pixels: Tensor) -> Tensor | None:
        """What the oracle says of images, a share for each class; none where there is no oracle."""
        if self.oracle is None:
            return None
        # In full precision whatever the rules say: its verdicts decide which images count.
        with torch.no_grad(), self.autocast(pixels, suits=False):
            shares = self.oracle.judge(pixels).float()
        # Whichever of several classes the oracle sees, the image still shows one that is right.
        return merged(shares, self.accepted) if self.accepted else shares

    def autocast(self, pixels: Tensor, *, suits: bool = True) -> torch.autocast:
        """Lower precision where the rules ask for it and it suits."""
        half = self.rules.precision == "bf16" and suits
        return torch.autocast(pixels.device.type, torch.bfloat16, enabled=half)

    def encode(self, pixels: Tensor, seeds: Tensor) -> Encoded:
        """What stands for these images, in full precision."""
        suits = self.generator.half
        with torch.no_grad(), self.autocast(pixels, suits=suits):
            encoded = self.generator.encode(pixels, seeds)
        return encoded._replace(latents=encoded.latents.float())

    def decode(self, latents: Tensor, context: Tensor) -> Tensor:
        """The generator's images in full precision, as a file of 8 bits holds them."""
        suits = self.generator.half
        with self.autocast(latents, suits=suits):
            pixels = self.generator.decode(latents, context).float()
        return as_saved(into_box(pixels, self.rules.pixel_clamp))

    def look(self, pixels: Tensor, targets: Tensor, labels: Tensor) -> Look:
        """What the model makes of images: its loss on each, and whether it is wrong."""
        with self.autocast(pixels):
            return self.way.look(self.model, pixels, targets, labels)

    def gradient(self, climbed: Tensor, pixels: Tensor, latents: Tensor) -> Tensor:
        """Of what is climbed, with respect to each image's own latents, through their pixels.

        All zero where the model gives none.
        """
        if not climbed.requires_grad:
            return torch.zeros_like(latents)
        slope = _slope(climbed.sum(), pixels)
        if slope is None:
            return torch.zeros_like(latents)
        found = _slope(pixels, latents, slope)
        return torch.zeros_like(latents) if found is None else found.float()


def _slope(of: Tensor, by: Tensor, weight: Tensor | None = None) -> Tensor | None:
    # None where nothing of `by` is seen in it.
    return torch.autograd.grad(of, by, weight, allow_unused=True)[0]
