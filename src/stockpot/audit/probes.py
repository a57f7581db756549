"""The attacks that an audit compares, each at its share of the budget."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stockpot.attack.directions import random_start
from stockpot.attack.draws import signs, uniform
from stockpot.attack.projection import project
from stockpot.attack.run import attack
from stockpot.attack.threat import Threat
from stockpot.audit.subject import Subject
from stockpot.errors import BadParameterError
from stockpot.models.forward.folding import Model
from stockpot.score.predictions import predictions

LEAST = 150
"""Forward passes per image below which the probes say nothing."""
NOISE = 10
"""Random images of the ball that each image is replaced with."""


@dataclass(frozen=True)
class Plan:
    """How the budget, in forward passes per image, is spent at most."""

    few: int
    """Steps of the shorter gradient attack, at every radius."""
    many: int
    """Steps of the longer ones."""
    queries: int
    """Of the random search."""

    @classmethod
    def of(cls, budget: int) -> Plan:
        """Half of it for gradients, the rest for the random search."""
        if budget < LEAST:
            raise BadParameterError(f"budget: expected at least {LEAST}, got {budget}.")
        few = max(3, budget // 50)
        many = 4 * few
        # Five radii, two short attacks and five long ones (two losses, the far end, two losses
        # straight through) look twice before their first step; then noise, and looks in between.
        radii, long = (len(FACTORS) + 1) * (few + 2), 5 * (many + 2)
        fixed = radii + (few // 3 + 5) + long + NOISE + 21
        return cls(few, many, max(10, budget - fixed))


FACTORS = (0.5, 1.0, 2.0, 4.0)
"""The radii of the curve, in multiples of eps; the far end comes after them."""


@dataclass(frozen=True)
class Probe:
    """One attack on all images of an audit."""

    standing: Tensor
    """Who withstood it."""
    loss: Tensor
    """The highest cross-entropy that it found."""
    images: Tensor


@dataclass(frozen=True)
class Images:
    """Pictures that the model is right about, with the seeds that belong to them."""

    pixels: Tensor
    labels: Tensor
    seeds: Tensor

    def __len__(self) -> int:
        return len(self.pixels)

    def take(self, rows: Tensor) -> Images:
        """Some of them."""
        return Images(self.pixels[rows], self.labels[rows], self.seeds[rows])


def gradient(model: Model, asked: Images, ball: Threat, **params: Any) -> Probe:
    """APGD; with `goal=loss` to the end, so that losses can be compared."""
    found = attack(
        model, asked.pixels, asked.labels, norm=ball.norm, eps=ball.eps, check=False,
        seed=asked.seeds.tolist(), **params,
    )  # fmt: skip
    return Probe(found.robust, found.loss, found.images)


def on_those_left(model: Model, asked: Images, left: Tensor, ball: Threat, **params: Any) -> Tensor:
    """Who of the images that are left falls to a further attack; its standing for all images."""
    standing = left.clone()
    rows = left.nonzero()[:, 0]
    if len(rows):
        standing[rows] = gradient(model, asked.take(rows), ball, **params).standing
    return standing


def noise(subject: Subject, asked: Images, ball: Threat) -> Tensor:
    """Who withstands random images of the ball, its corners in l_inf."""
    standing = torch.ones(len(asked), dtype=torch.bool, device=asked.pixels.device)
    for draw in range(NOISE):
        if ball.norm == "linf":
            change = signs(asked.seeds, asked.pixels.shape[1:], 71, draw).to(asked.pixels)
            seen = project("linf", asked.pixels, asked.pixels + ball.radius * change, ball.radius)
        else:
            seen = random_start(ball.norm, asked.pixels, asked.seeds, ball.radius, 71, draw)
        standing &= predictions(subject.logits(seen)) == asked.labels
    return standing


def one_level(subject: Subject, asked: Images) -> Tensor:
    """Who withstands a change of every value by at most one of the 256 levels, in all of 3 draws.

    An image counts as fallen only where every draw fells it, so that one beside a boundary stays.
    """
    fallen = torch.ones(len(asked), dtype=torch.bool, device=asked.pixels.device)
    for draw in range(3):
        change = (uniform(asked.seeds, asked.pixels.shape[1:], 73, draw) * 3).floor() - 1
        seen = (asked.pixels + change.to(asked.pixels) / 255).clamp(0, 1)
        fallen &= predictions(subject.logits(seen)) != asked.labels
    return ~fallen


def near_by(asked: Images) -> Tensor:
    """Each picture with every value changed by less than half of one of the 256 levels."""
    change = uniform(asked.seeds, asked.pixels.shape[1:], 79).to(asked.pixels) - 0.5
    return (asked.pixels + 0.9 * change / 255).clamp(0, 1)


def far_end(ball: Threat, shape: torch.Size) -> Threat:
    """A radius at which every picture can become the same grey, so that nothing is left to see."""
    size = math.prod(shape)
    radius = {"linf": 0.5, "l2": 0.5 * math.sqrt(size), "l1": 0.5 * size}[ball.norm]
    return Threat(ball.norm, repr(max(radius, ball.radius)))


def scaled(ball: Threat, factor: float) -> Threat:
    """The same ball, larger or smaller."""
    return ball if factor == 1 else Threat(ball.norm, repr(factor * ball.radius))
