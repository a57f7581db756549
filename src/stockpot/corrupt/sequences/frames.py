"""`frames`: the sequence of one perturbation over a batch, a frame at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from stockpot.corrupt.blur.motion_blur import streak
from stockpot.corrupt.constants import Profile, profile_for
from stockpot.corrupt.draws import Draws
from stockpot.corrupt.levels import truncate
from stockpot.corrupt.noise import add_normal, multiply_normal, shot_noise
from stockpot.corrupt.separable import smooth
from stockpot.corrupt.sequences import moves
from stockpot.corrupt.sequences.steps import DIFFICULTIES, EXTRA, PERTURBATIONS, STEPS, Steps
from stockpot.corrupt.tone import brightness
from stockpot.corrupt.weather.snow import let_snow
from stockpot.errors import BadParameterError, UnknownNameError
from stockpot.types import ImageSize

FRAMES = 31
PHOTO_SHAPE = (256, 341)
"""What the focal length of tilted photographs follows: the usual shape, its short side 256."""


def is_noise(name: str) -> bool:
    """Whether frames are compared with the first one: those of noise have no order."""
    return name.endswith("_noise")


def frames(
    canvas: Tensor,
    name: str,
    *,
    side: ImageSize | None = None,
    seed: Sequence[int],
    difficulty: int = 1,
    profile: Profile | Literal["auto"] = "auto",
) -> Iterator[Tensor]:
    """The frames of one perturbation, uint8 N x 3 x H x W each; only one is in memory.

    Args:
        canvas: the pictures, uint8. What lies around the middle part that is shown comes into view
            when they move; black beyond.
        name: a perturbation by its ImageNet-P folder name.
        side: the part that is shown; without it the whole.
        seed: one per picture; its pixels depend on that alone.
        difficulty: 1 to 3, of noise. Other sequences are the same at each: they are looked at in
            larger steps.
        profile: whose numbers, as for `corrupt`.
    """
    if name not in (*PERTURBATIONS, *EXTRA):
        raise UnknownNameError("perturbation", name, [*PERTURBATIONS, *EXTRA])
    if difficulty not in DIFFICULTIES:
        raise BadParameterError(f"difficulty: expected 1, 2 or 3, got {difficulty!r}.")
    shown = side or ImageSize(canvas.shape[2], canvas.shape[3])
    steps = STEPS[profile_for(shown) if profile == "auto" else profile]
    pixels = moves.middle(canvas, shown).contiguous()

    def drawn(frame: int) -> Draws:
        return Draws(seed, f"{name}:{difficulty}:frame {frame}", canvas.device)

    if is_noise(name):
        yield pixels
        for frame in range(1, FRAMES):
            yield _NOISES[name](pixels, steps, difficulty - 1, drawn(frame))
    elif name == "snow":
        yield from _snow(pixels, steps, drawn(0))
    elif name == "zoom_blur":
        yield from _zoom(canvas, pixels, shown)
    elif name in ("motion_blur", "brightness", "gaussian_blur"):
        yield from _STILL[name](pixels, steps)
    else:
        yield from _moved(canvas, shown, name, steps)


def _gaussian(pixels: Tensor, steps: Steps, level: int, draws: Draws) -> Tensor:
    return add_normal(pixels, draws.normal(pixels.shape[1:]), steps.gaussian_noise[level])


def _shot(pixels: Tensor, steps: Steps, level: int, draws: Draws) -> Tensor:
    noisy: Tensor = shot_noise(pixels, (steps.shot_noise[level],), draws)
    return noisy


def _speckle(pixels: Tensor, steps: Steps, level: int, draws: Draws) -> Tensor:
    return multiply_normal(pixels, draws.normal(pixels.shape[1:]), steps.speckle_noise[level])


_NOISES: dict[str, Callable[[Tensor, Steps, int, Draws], Tensor]] = {
    "gaussian_noise": _gaussian,
    "shot_noise": _shot,
    "speckle_noise": _speckle,
}


def _motion(pixels: Tensor, steps: Steps) -> Iterator[Tensor]:
    count, radius, sigma, more = steps.motion_blur
    for frame in range(count):
        degrees = torch.full((len(pixels),), (frame - count + 1) * more, device=pixels.device)
        yield streak(pixels, radius, sigma, degrees).to(torch.uint8)


def _brightness(pixels: Tensor, steps: Steps) -> Iterator[Tensor]:
    nothing = Draws(range(len(pixels)), "brightness", pixels.device)
    for frame in range(FRAMES):
        yield brightness(pixels, ((frame - FRAMES // 2) * steps.brightness,), nothing)


def _blur(pixels: Tensor, steps: Steps) -> Iterator[Tensor]:
    sigma, more, ends = steps.gaussian_blur
    for frame in range(FRAMES):
        yield truncate(smooth(pixels.float(), sigma + more * frame, truncate=ends).clone())


_STILL: dict[str, Callable[[Tensor, Steps], Iterator[Tensor]]] = {
    "motion_blur": _motion,
    "brightness": _brightness,
    "gaussian_blur": _blur,
}


def _snow(pixels: Tensor, steps: Steps, draws: Draws) -> Iterator[Tensor]:
    """One layer of flakes, whose direction of fall turns."""
    deviation, zoom, radius, sigma = steps.snow
    constants = (0.05, deviation, zoom, 0.5, radius, sigma, 0.85)
    normal = draws.normal(pixels.shape[2:])
    for frame in range(FRAMES):
        degrees = torch.full((len(pixels),), frame * 4.0 - 150, device=pixels.device)
        yield let_snow(pixels, constants, normal, degrees)


def _zoom(canvas: Tensor, pixels: Tensor, shown: ImageSize) -> Iterator[Tensor]:
    """The mean over ever more enlargements."""
    whole, total = canvas.float(), pixels.float()
    yield pixels
    for frame in range(1, FRAMES):
        enlarged = moves.view(whole, shown, moves.enlarge(1 + 0.004 * frame))
        total = total + enlarged.floor()
        yield truncate(total / (frame + 1))


def _moved(canvas: Tensor, shown: ImageSize, name: str, steps: Steps) -> Iterator[Tensor]:
    if name == "translate":
        first, last = steps.translate
        for shift in range(first, last + 1):
            yield moves.middle(canvas, shown, shift).contiguous()
        return
    whole = canvas.float()
    larger = tuple(canvas.shape[2:]) != tuple(shown)
    focal = math.hypot(*(PHOTO_SHAPE if larger else shown))
    for frame in range(FRAMES):
        way = frame - FRAMES // 2
        if name == "tilt":
            matrix = moves.tilt(way * steps.tilt, focal)
        elif name == "rotate":
            matrix = moves.turn(way)
        else:
            matrix = moves.enlarge(steps.scale[0] + steps.scale[1] * frame)
        # Tilted pictures come from another library, which rounds and counts from corners.
        seen = moves.view(whole, shown, matrix, corner=name == "tilt")
        yield truncate(seen + 0.5 if name == "tilt" else seen)
