"""The random fields that the original ImageNet-C code drew, regenerated call by call.

Before image i at severity s the reference run called `numpy.random.seed(1000 * s + i)`; each
function below repeats the draws of one corruption in the original's order with a private
`RandomState`, and hands them to our own apply functions.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from stockpot.corrupt import noise
from stockpot.corrupt.blur.glass_blur import glass
from stockpot.corrupt.blur.motion_blur import streak
from stockpot.corrupt.constants import Constants
from stockpot.corrupt.digital.elastic_transform import displace
from stockpot.corrupt.weather.fog import add_cloud, cloud_side
from stockpot.corrupt.weather.snow import let_snow
from stockpot.corrupt.weather.spatter import splash

Apply = Callable[[Tensor, Constants, np.random.RandomState], Tensor]


def generator(severity: int, image: int) -> np.random.RandomState:
    return np.random.RandomState(1000 * severity + image)


def _field(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.asarray(values, dtype=np.float32))[None]


def _channels_first(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values.transpose(2, 0, 1)))[None]


def _height_width_channels(pixels: Tensor) -> tuple[int, int, int]:
    return pixels.shape[2], pixels.shape[3], 3


def gaussian_noise(pixels: Tensor, constants: Constants, random: np.random.RandomState) -> Tensor:
    normal = random.normal(size=_height_width_channels(pixels)).astype(np.float32)
    return noise.add_normal(pixels, _channels_first(normal), constants[0])


def speckle_noise(pixels: Tensor, constants: Constants, random: np.random.RandomState) -> Tensor:
    normal = random.normal(size=_height_width_channels(pixels)).astype(np.float32)
    return noise.multiply_normal(pixels, _channels_first(normal), constants[0])


def shot_noise(pixels: Tensor, constants: Constants, random: np.random.RandomState) -> Tensor:
    rates = pixels[0].permute(1, 2, 0).numpy() / 255.0 * constants[0]
    return noise.count_levels(_channels_first(random.poisson(rates)), constants[0])


def impulse_noise(pixels: Tensor, constants: Constants, random: np.random.RandomState) -> Tensor:
    hit = random.random_sample(_height_width_channels(pixels)) < constants[0]
    salt = random.random_sample(_height_width_channels(pixels)) < 0.5
    return noise.set_impulses(pixels, _channels_first(hit), _channels_first(salt))


def glass_blur(pixels: Tensor, constants: Constants, random: np.random.RandomState) -> Tensor:
    reach, passes = int(constants[1]), int(constants[2])
    rows, columns = (size - 2 * reach for size in pixels.shape[2:])
    # One call per pixel with size 2; a single call draws the same sequence.
    steps = random.randint(-reach, reach, size=(1, passes, rows, columns, 2))
    # Drawn as (dx, dy) while scanning backwards; `glass` takes planes in raster order.
    raster = torch.from_numpy(steps).permute(0, 1, 4, 2, 3).flip(3, 4)
    return glass(pixels, constants, raster)


def motion_blur(pixels: Tensor, constants: Constants, random: np.random.RandomState) -> Tensor:
    angle = torch.tensor([random.uniform(-45, 45)], dtype=torch.float64)
    return streak(pixels, int(constants[0]), constants[1], angle).to(torch.uint8)


def snow(pixels: Tensor, constants: Constants, random: np.random.RandomState) -> Tensor:
    normal = random.normal(size=pixels.shape[2:])
    angle = torch.tensor([random.uniform(-135, -45)], dtype=torch.float64)
    return let_snow(pixels, constants, _field(normal), angle)


def fog(pixels: Tensor, constants: Constants, random: np.random.RandomState) -> Tensor:
    side = cloud_side(max(pixels.shape[2:]))
    return add_cloud(pixels, constants, _field(random.uniform(-1, 1, size=side * side - 1)))


def spatter(pixels: Tensor, constants: Constants, random: np.random.RandomState) -> Tensor:
    return splash(pixels, constants, _field(random.normal(size=pixels.shape[2:])))


def elastic_transform(
    pixels: Tensor, constants: Constants, random: np.random.RandomState
) -> Tensor:
    corners = random.uniform(-1, 1, size=(3, 2))
    right = random.uniform(-1, 1, size=pixels.shape[2:])
    down = random.uniform(-1, 1, size=pixels.shape[2:])
    return displace(pixels, constants, _field(corners), _field(np.stack([right, down])))


ORIGINAL: dict[str, Apply] = {
    "gaussian_noise": gaussian_noise,
    "shot_noise": shot_noise,
    "impulse_noise": impulse_noise,
    "speckle_noise": speckle_noise,
    "glass_blur": glass_blur,
    "motion_blur": motion_blur,
    "snow": snow,
    "fog": fog,
    "spatter": spatter,
    "elastic_transform": elastic_transform,
}
