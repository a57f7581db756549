"""PixMix: pictures mixed with changed copies of themselves and with fractals (arXiv:2112.05135).

Its published mixing set are fractals and feature visualisations from the web; the fractals here are
drawn by `fractals.py`, and any other set of pictures may be given instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.feed import Feed
from stockpot.errors import BadParameterError
from stockpot.harden import hardeners
from stockpot.harden.augment import augment
from stockpot.harden.augmentation.fractals import fractals
from stockpot.harden.augmentation.simple_changes import one_change
from stockpot.harden.objective import Objective, Step
from stockpot.harden.other_images import of_size, other_images, taken
from stockpot.models.classifier import Classifier
from stockpot.types import Count, DataRef, Natural, Positive

_SMALLEST = 1e-37
"""What stands for black where a picture has a negative power."""


@hardeners.register("pixmix", paper="arXiv:2112.05135", holds=("contrast",))
def pixmix(
    *,
    rounds: Natural = 4,
    beta: Positive = 3.0,
    severity: Positive = 3.0,
    pictures: DataRef = "",
    count: Count = 300,
) -> Objective:
    """Cross-entropy on pictures mixed with changed copies of themselves and with fractals.

    Published: rounds 4, with beta 3 and severity 3 for small images, 4 and 1 for large ones. The
    changes are those of `augmix`, two of which come near contrast.

    Args:
        rounds: of mixing, at most; each image draws 0 to so many.
        beta: the larger, the more of the image stays.
        severity: how strong the changes may be, up to 10.
        pictures: the mixing set: a dataset or folder of pictures; fractals when left out.
        count: how many fractals.
    """
    if severity > 10:
        raise BadParameterError(f"severity: expected above 0, up to 10, got {severity}.")
    return PixMix(rounds, beta, severity, pictures, count)


@dataclass
class PixMix:
    """The objective, with the pictures that are mixed in."""

    rounds: int
    beta: float
    severity: float
    pictures: str
    count: int
    feed: Feed | None = None
    drawn: Tensor = field(default_factory=lambda: torch.empty(0))

    def begin(self, model: Classifier, data: Dataset, validation: Dataset | None) -> None:
        """Draw the fractals, or open the pictures."""
        if self.pictures:
            self.feed = other_images(self.pictures, model)
        else:
            height, width = model.preprocess.size
            square = fractals(self.count, max(height, width))
            self.drawn = square[:, :, :height, :width].to(model.device)

    def __call__(self, step: Step) -> Tensor:
        mixed = step.own(self.mixture(step.whole.pixels, step.generator))
        return F.cross_entropy(step.model(mixed), step.labels)

    def mixture(self, pixels: Tensor, generator: Generator) -> Tensor:
        """Every image after its rounds of mixing."""
        n = len(pixels)
        other = of_size(self._others(n, generator), pixels)
        other = augment(other, ("flip", "crop"), generator)
        mixed = _either(self._changed(pixels, generator), pixels, generator)
        lengths = torch.randint(self.rounds + 1, (n,), generator=generator)
        for number in range(self.rounds):
            partner = _either(self._changed(pixels, generator), other, generator)
            a, b = shares(n, self.beta, generator)
            sums = _one(torch.rand(n, generator=generator) < 0.5, pixels)
            first, second = _one(a, pixels), _one(b, pixels)
            blend = torch.where(
                sums,
                added(mixed, partner, first, second),
                multiplied(mixed, partner, first, second),
            ).clamp(0, 1)
            mixed = torch.where(_one(lengths > number, pixels), blend, mixed)
        return mixed

    def _changed(self, pixels: Tensor, generator: Generator) -> Tensor:
        return one_change(pixels, torch.ones(len(pixels)) > 0, generator, self.severity)

    def _others(self, n: int, generator: Generator) -> Tensor:
        held = self.drawn if self.feed is None else self.feed
        rows = torch.randint(len(held), (n,), generator=generator)
        if self.feed is None:
            return self.drawn[rows.to(self.drawn.device)]
        return taken(self.feed, rows)


def added(image: Tensor, other: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """`a` of one and `b` of the other, both counted from mid-grey."""
    return (a * (2 * image - 1) + b * (2 * other - 1) + 1) / 2


def multiplied(image: Tensor, other: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The product of powers of both, in which mid-grey is one."""
    return (2 * image) ** a * (2 * other).clamp(min=_SMALLEST) ** b / 2


def shares(n: int, beta: float, generator: Generator) -> tuple[Tensor, Tensor]:
    """What of an image and of its partner is taken: both below one, or more than all less some."""
    # torch's Beta takes no generator; numpy's is seeded from ours.
    seed = int(torch.randint(0, 2**62, (), generator=generator))
    numbers = np.random.default_rng(seed)
    both = numbers.random(n) < 0.5
    much, little, less = (
        numbers.beta(beta, 1, n),
        numbers.beta(1, beta, n),
        numbers.beta(1, beta, n),
    )
    a, b = np.where(both, much, 1 + less), np.where(both, little, -little)
    return torch.from_numpy(a), torch.from_numpy(b)


def _either(first: Tensor, second: Tensor, generator: Generator) -> Tensor:
    """The first or the second, drawn for each image."""
    chosen = torch.rand(len(first), generator=generator) < 0.5
    return torch.where(_one(chosen, first), first, second)


def _one(values: Tensor, like: Tensor) -> Tensor:
    """A value for each image, on its device."""
    there = values if values.dtype == torch.bool else values.to(like.dtype)
    return there.to(like.device, non_blocking=True).view(-1, 1, 1, 1)
