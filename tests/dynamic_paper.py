"""A generator, a model and an oracle whose every step can be computed on paper, and a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from stockpot.dynamic.generator import Encoded

# Table 13 of arXiv:2308.10632: nine classes of 150 images each, a plain ResNet-18, step 0.1, budget
# 50. For each class: right as they are, validated, right when perturbed, and the FMR as printed
# (Crab is printed as 19.87; its counts give 19.88). All printed values follow from these counts.
TABLE_13 = {
    "dog": (140, 143, 24, 17.98),
    "cat": (145, 141, 43, 31.55),
    "frog": (128, 121, 21, 20.34),
    "turtle": (127, 118, 29, 29.03),
    "bird": (137, 144, 37, 28.13),
    "primate": (144, 72, 43, 62.21),
    "fish": (141, 115, 49, 45.33),
    "crab": (144, 131, 25, 19.88),
    "insect": (140, 117, 37, 33.88),
}
EACH = 150
TOTAL = {"accuracy": 92.30, "validation_rate": 81.63, "perturbed_accuracy": 27.95, "fmr": 30.28}


class Linear:
    """The latents are the pixels themselves."""

    name = "linear"
    step = 0.1
    half = False

    def to(self, device: torch.device) -> Linear:
        return self

    def encode(self, pixels: Tensor, seeds: Tensor) -> Encoded:
        return Encoded(pixels.clone(), pixels.new_empty(len(pixels), 0))

    def decode(self, latents: Tensor, context: Tensor) -> Tensor:
        return latents

    def clamp(self, latents: Tensor) -> Tensor:
        return latents.clamp(0, 1)

    def codes(self, latents: Tensor) -> Tensor | None:
        return None

    def settled(self, latents: Tensor) -> Tensor:
        return latents


class Brightness(nn.Module):
    """Two classes by the first pixel: logit 1 minus logit 0 is 20 (pixel - 0.5)."""

    def forward(self, pixels: Tensor) -> Tensor:
        gap = 20 * (pixels[:, 0, 0, 0] - 0.5)
        return torch.stack([torch.zeros_like(gap), gap], dim=1)


class Scripted:
    """Accepts an image as class 0 so many times; the image's number stands in its last pixel."""

    name = "scripted"

    def __init__(self, accepts: dict[int, int]) -> None:
        self.left = dict(accepts)
        self.asked: list[list[int]] = []

    @property
    def networks(self) -> Sequence[nn.Module]:
        return ()

    def judge(self, pixels: Tensor) -> Tensor:
        numbers = (pixels[:, 0, -1, -1] * 10).round().int().tolist()
        self.asked.append(numbers)
        shares = torch.zeros(len(pixels), 2)
        for row, number in enumerate(numbers):
            accepted = self.left[number] > 0
            self.left[number] -= 1
            shares[row] = torch.tensor([0.9, 0.1] if accepted else [0.2, 0.8])
        return shares


class Threshold:
    """Accepts an image as class 0 as long as a rule holds for its first pixel."""

    name = "threshold"

    def __init__(self, rule: Callable[[Tensor], Tensor]) -> None:
        self.rule = rule

    @property
    def networks(self) -> Sequence[nn.Module]:
        return ()

    def judge(self, pixels: Tensor) -> Tensor:
        yes = self.rule(pixels[:, 0, 0, 0]).float()
        return torch.stack([yes, 1 - yes], dim=1)


def numbered(count: int, first: float = 0.2) -> Tensor:
    """Pictures of 2 x 2 pixels: the first pixel is what the model sees, the last their number.

    All values are levels of 8 bits, the first pixel being 51.
    """
    pixels = torch.full((count, 3, 2, 2), 0.5)
    pixels[:, :, 0, 0] = first
    pixels[:, :, 1, 1] = (torch.arange(count) / 10)[:, None]
    return (pixels * 255).round() / 255
