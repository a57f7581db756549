"""Procedural textures: ten patterns in two palettes, each picture with its own spacing and colour.

A context must be recognisable whatever its details, as a meadow is: the pattern and the hue stay,
the spacing, the position and the shade are drawn for each picture.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Pattern = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From x, y in [0, 1] and a spacing to a value in [0, 1]: how much of the second colour."""

DRAWS = 7
"""Uniform numbers that one texture takes."""


def _wave(phase: Tensor) -> Tensor:
    return 0.5 + 0.5 * torch.sin(2 * math.pi * phase)


def _step(phase: Tensor) -> Tensor:
    return ((phase % 1) < 0.5).double()


def _bricks(x: Tensor, y: Tensor, n: Tensor) -> Tensor:
    row = torch.floor(y * 2 * n)
    along = (x * n + 0.5 * (row % 2)) % 1
    return ((along > 0.1) & ((y * 2 * n) % 1 > 0.2)).double()


def _dots(x: Tensor, y: Tensor, n: Tensor) -> Tensor:
    return ((((x * n) % 1) - 0.5) ** 2 + (((y * n) % 1) - 0.5) ** 2 < 0.09).double()


def _zigzag(x: Tensor, y: Tensor, n: Tensor) -> Tensor:
    return _step(y * n + (2 * ((x * n) % 1) - 1).abs() * 0.5)


PATTERNS: dict[str, Pattern] = {
    "level stripes": lambda x, y, n: _step(y * n),
    "checks": lambda x, y, n: (_step(x * n) - _step(y * n)).abs(),
    "dots": _dots,
    "slanting stripes": lambda x, y, n: _step((x + y) * n),
    "rings": lambda x, y, n: _wave(((x - 0.5) ** 2 + (y - 0.5) ** 2).sqrt() * 2 * n),
    "bricks": _bricks,
    "ripples": lambda x, y, n: _wave(y * n + 0.3 * torch.sin(2 * math.pi * x * n)),
    "upright stripes": lambda x, y, n: _step(x * n),
    "plaid": lambda x, y, n: 0.5 * (_step(x * n) + _step(y * n)),
    "zigzag": _zigzag,
}
NAMES: tuple[str, ...] = tuple(
    f"{tone} {pattern}" for tone in ("warm", "cool") for pattern in PATTERNS
)


def draw_textures(which: Sequence[int], draws: Tensor, size: int) -> Tensor:
    """Textures as N x 3 x size x size in [0, 255].

    Args:
        which: the number of each one's name.
        draws: `DRAWS` uniform numbers for each.
        size: height and width.
    """
    kinds = torch.as_tensor(which)
    axis = (torch.arange(size, dtype=torch.float64) + 0.5) / size
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    drawn = draws.double()[:, :, None, None]
    amount = torch.empty(len(kinds), size, size, dtype=torch.float64)
    for number, pattern in enumerate(PATTERNS.values()):
        rows = (kinds % len(PATTERNS) == number).nonzero()[:, 0]
        if len(rows):
            own = drawn[rows]
            amount[rows] = pattern(x + own[:, 0], y + own[:, 1], 3 + 3 * own[:, 2])
    first, second = _colours(kinds, draws.double())
    mixed = amount[:, None] * second[:, :, None, None]
    return 255 * ((1 - amount[:, None]) * first[:, :, None, None] + mixed)


def _colours(kinds: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
    count = len(PATTERNS)
    # Warm hues lie around red, cool ones around blue; patterns of one tone share them out.
    hue = (kinds % count) / count / 2 + 0.5 * (kinds // count) - 0.1 + 0.04 * (draws[:, 3] - 0.5)
    light = 0.75 + 0.25 * draws[:, 4]
    dark = light * (0.35 + 0.25 * draws[:, 5])
    strength = 0.45 + 0.4 * draws[:, 6]
    return _rgb(hue, strength, light), _rgb(hue + 0.06, strength, dark)


def _rgb(hue: Tensor, saturation: Tensor, value: Tensor) -> Tensor:
    offsets = torch.tensor([5.0, 3.0, 1.0], dtype=torch.float64)
    k = (offsets + 6 * hue[:, None]) % 6
    dip = torch.minimum(k, 4 - k).clamp(0, 1)
    return value[:, None] * (1 - saturation[:, None] * dip)
