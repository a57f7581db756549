"""Our own frost: ferns of ice grown from random seeds over a soft haze.

The photographs that the original benchmark laid over its pictures have no stated origin, so these
five textures are drawn instead: each takes the colour statistics (mean and deviation of the
channels, the fifth as random crops see them: its photograph is bright at the rim, where few crops
reach) of one photograph, and roughly its share of slow and fine structure. They are made once per
process, from a fixed seed, on the CPU.
"""

from __future__ import annotations

import math
import threading
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stockpot.corrupt.draws import Draws
from stockpot.corrupt.separable import smooth
from stockpot.corrupt.weather.fog import plasma

SIDE = 512
_drawing = threading.Lock()
_BRANCHES, _POINTS = 48, 40


class Texture(NamedTuple):
    """How one overlay is drawn."""

    ferns: int
    length: float
    """Of a fern's stem in pixels, the longest."""
    spread: float
    """Angle between stem and branches in degrees."""
    spacing: float
    """Between branches in pixels."""
    haze: float
    """Share of the variance that is slow."""
    mean: tuple[int, int, int]
    deviation: tuple[int, int, int]


TEXTURES: tuple[Texture, ...] = (
    Texture(500, 60, 25, 2.2, 0.65, (78, 149, 166), (27, 16, 15)),
    Texture(420, 90, 20, 2.2, 0.45, (201, 205, 214), (21, 22, 23)),
    Texture(420, 90, 30, 2.4, 0.45, (201, 205, 214), (21, 22, 23)),
    Texture(450, 60, 50, 3.0, 0.40, (138, 153, 165), (28, 28, 30)),
    Texture(220, 140, 45, 4.0, 0.40, (101, 112, 124), (38, 38, 37)),
)


def overlays() -> tuple[Tensor, ...]:
    """The five overlays, uint8 3 x 512 x 512 each."""
    with _drawing:  # whoever asks while they are being drawn waits for them
        return _overlays()


@cache
def _overlays() -> tuple[Tensor, ...]:
    return tuple(draw(texture, number) for number, texture in enumerate(TEXTURES))


def draw_ahead() -> None:
    """Draw the overlays in a thread, for who will want them in a while."""
    # Not a daemon: a process that ended while torch is at work would be aborted.
    threading.Thread(target=overlays, name="frost").start()


def draw(texture: Texture, seed: int) -> Tensor:
    """One overlay."""
    draws = Draws([seed], "frost overlay", torch.device("cpu"))
    haze = plasma(draws.uniform((SIDE * SIDE - 1,)) * 2 - 1, decay=2.0)
    ice = _ferns(texture, draws)
    ice = ice - smooth(ice, 16)  # slow structure is the haze's part
    grain = smooth(draws.normal((SIDE, SIDE), stream=7), 0.7)
    mixed = math.sqrt(texture.haze) * _standard(haze)
    mixed += math.sqrt(0.7 * (1 - texture.haze)) * _standard(ice)
    mixed += math.sqrt(0.3 * (1 - texture.haze)) * _standard(grain)
    mean = torch.tensor(texture.mean).view(3, 1, 1)
    deviation = torch.tensor(texture.deviation).view(3, 1, 1)
    return (mean + deviation * _standard(mixed)).clamp(0, 255).to(torch.uint8)


def _ferns(texture: Texture, draws: Draws) -> Tensor:
    """Brightness of ferns: a stem, and branches on both sides that shorten towards the tip."""
    shape = texture.ferns, 1, 1
    x, y, direction, length, bend = (
        draws.uniform(shape, stream=stream)[0].double().numpy() for stream in range(1, 6)
    )
    jitter = draws.uniform((texture.ferns, _BRANCHES, 1), stream=6)[0].double().numpy()
    length = texture.length * (0.25 + 0.75 * length)
    # Branches stand at equal distances, so a short stem has few; those past its tip weigh nothing.
    along = np.arange(_BRANCHES)[:, None] * texture.spacing / length
    grown = along < 1
    along = along.clip(max=1)
    side = np.where(np.arange(_BRANCHES) % 2, 1, -1)[:, None]
    out = np.linspace(0, 1, _POINTS) * 0.45 * (1 - along) * (0.6 + 0.8 * jitter)
    heading = 2 * math.pi * direction + 0.8 * (bend - 0.5) * along
    branch = heading + side * math.radians(texture.spread)
    columns = SIDE * x + length * (along * np.cos(heading) + out * np.cos(branch))
    rows = SIDE * y + length * (along * np.sin(heading) + out * np.sin(branch))
    place = (rows.astype(np.int64) % SIDE) * SIDE + columns.astype(np.int64) % SIDE
    weight = grown * length * (1 - along) * (1 - 0.6 * np.linspace(0, 1, _POINTS)) / 100
    density = np.bincount(place.ravel(), weight.ravel(), minlength=SIDE * SIDE)
    ice = torch.from_numpy(density).float().view(1, SIDE, SIDE)
    return 1 - torch.exp(-1.5 * smooth(ice, 0.6))


def _standard(field: Tensor) -> Tensor:
    return (field - field.mean()) / field.std()
