"""Whether generator and oracle suit the data: one line each where they do not."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from stockpot.dynamic.generator import Generator
from stockpot.dynamic.grid import on_its_grid, working_size
from stockpot.dynamic.oracles.networks import EXPERTS
from stockpot.dynamic.task import Task
from stockpot.types import ImageSize

POOR = 18.0
"""Decibels; pictures that come back worse than this are hardly recognised."""


@torch.no_grad()
def given_back(task: Task, pixels: Tensor) -> float:
    """How well the generator gives images back: PSNR in decibels, infinite where it is exact."""
    size = ImageSize(*pixels.shape[-2:])
    seeds = torch.zeros(len(pixels), dtype=torch.long, device=pixels.device)
    maker = on_its_grid(task.generator, size)
    made = maker.decode(*maker.encode(pixels, seeds)).clamp(0, 1)
    return float(-10 * (made - pixels).square().mean().log10())


def generator_notes(
    generator: Generator, data: str, size: ImageSize, psnr: Callable[[], float]
) -> list[str]:
    """What the result must say of a generator on data of this name and size.

    Args:
        generator: what changes the images.
        data: the name of the dataset.
        size: of its images.
        psnr: how well the generator gives them back, asked only where it matters: it takes a pass.
    """
    notes = []
    inner = working_size(generator, size)
    if inner != size:
        notes.append(f"images of {size} px pass the generator at {inner} px and are brought back")
    training = getattr(generator, "upbringing", None)
    hint = "choose another generator, or other weights with generator_params.autoencoder"
    if training is not None and not training.knows(data, min(size)):
        seen = ", ".join(f"{name} ({side} px)" for name, side in training.sides.items())
        notes.append(
            f"the generator {training.name} has not learned from pictures like these ({data}, "
            f"{size} px) but from {seen}: it gives them back at {psnr():.1f} dB; {hint}"
        )
    elif training is None and (found := psnr()) < POOR:
        notes.append(
            f"the generator {generator.name} gives these images back at only {found:.1f} dB, so it "
            f"does not suit them; {hint}"
        )
    return notes


def default_oracle_note(data: str, judge: str, accuracy: float, classes: int) -> list[str]:
    """Where no oracle was named: whether the one that was taken knows the classes, by number."""
    if data in EXPERTS:
        return []
    return [
        f"no oracle of the zoo was trained on the classes of {data}: the default {judge} is right "
        f"about {100 * accuracy:.1f} % of the images as they are (chance: {100 / classes:.1f} %); "
        "give another with oracle_params.model"
    ]
