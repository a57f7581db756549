"""`corrupt`: one corruption at one severity over a batch of images."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, Literal, overload

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from stockpot.corrupt import corruptions
from stockpot.corrupt.between import constants_at, plain
from stockpot.corrupt.constants import TABLES, Constants, Profile, profile_for
from stockpot.corrupt.draws import Draws
from stockpot.datasets.pictures import as_rgb
from stockpot.errors import BadDataError, BadParameterError
from stockpot.types import ImageSize

SMALLEST_SIDE = 16
STRIDE = 1 << 32
"""How far the seeds of two runs lie apart: farther than any set has pictures."""
_HALF_A_LEVEL = 0.5 / 255  # what rounding to the 256 levels takes back

# On a CPU the batch is worked off in portions of about this many values: two pictures of 224 px, or
# some hundred of 32 px. A portion's float copies then stay near the cache, and memory does not grow
# with the batch.
_CPU_PORTION = 2 * 3 * 224 * 224


@overload
def corrupt(
    images: Tensor,
    name: str,
    severity: float,
    *,
    seed: int | Sequence[int] = 0,
    profile: Profile | Literal["auto"] = "auto",
    **params: Any,
) -> Tensor: ...


@overload
def corrupt(
    images: Image.Image,
    name: str,
    severity: float,
    *,
    seed: int | Sequence[int] = 0,
    profile: Profile | Literal["auto"] = "auto",
    **params: Any,
) -> Image.Image: ...


def corrupt(
    images: Tensor | Image.Image,
    name: str,
    severity: float,
    *,
    seed: int | Sequence[int] = 0,
    profile: Profile | Literal["auto"] = "auto",
    **params: Any,
) -> Tensor | Image.Image:
    """Corrupt a batch; dtype, shape and device stay.

    The benchmark is defined on 8-bit pictures: floats are rounded to the nearest of the 256 levels
    first, and the result lies on these levels again. So `corrupt(x / 255)` is `corrupt(x) / 255`.

    Args:
        images: N x 3 x H x W, uint8 or float in [0, 1], at least 16 px a side; or one PIL image,
            which gives a PIL image back.
        name: a corruption by its ImageNet-C folder name, such as `gaussian_noise`.
        severity: 1 (mild) to 5; 2.5 lies halfway between the constants of 2 and 3.
        seed: an int (image i uses seed + i) or one int per image. The pixels of an image depend on
            its own seed alone, not on the batch, the order or the device.
        profile: constants made for 224 px (`imagenet`), 299 px (`inception`), 64 px
            (`tinyimagenet`) or 32 px (`cifar`); `auto` takes those of the nearest size.
        params: the corruption's own parameters, such as frost's `overlays`.
    """
    if isinstance(images, Image.Image):
        pixels = torch.from_numpy(np.array(as_rgb(images))).permute(2, 0, 1)[None]
        (changed,) = corrupt(pixels, name, severity, seed=seed, profile=profile, **params)
        return Image.fromarray(changed.permute(1, 2, 0).numpy())
    entry = corruptions.get(name)
    settings = entry.validate(params)
    _check_images(images)
    seeds = _seeds(seed, len(images))
    constants = constants_for(name, severity, profile, image_size(images))
    # Whatever the strides: some corruptions address the memory of a picture directly.
    pixels = (images if images.dtype == torch.uint8 else _to_levels(images)).contiguous()
    portion = len(images)
    if images.is_cpu and not entry.tags.whole_batch:
        portion = max(1, _CPU_PORTION // max(1, pixels[:1].numel()))
    parts = []
    for start in range(0, len(images), max(1, portion)):
        rows = slice(start, start + portion)
        draws = Draws(seeds[rows], f"{name}:{plain(severity)}", images.device)
        parts.append(entry.function(pixels[rows], constants, draws, **settings))
    result = parts[0] if len(parts) == 1 else torch.cat([*parts, pixels[:0]])
    return result if images.dtype == torch.uint8 else result.to(images.dtype) / 255


def picture_seeds(seed: int, rows: Iterable[int]) -> list[int]:
    """The seed of each row of a dataset in a run with this seed; no two runs share one."""
    return [seed * STRIDE + int(row) for row in rows]


def constants_for(
    name: str, severity: float, profile: Profile | Literal["auto"], size: ImageSize
) -> Constants:
    """The constants of one corruption and severity under a profile."""
    if profile == "auto":
        profile = profile_for(size)
    if profile not in TABLES:
        raise BadParameterError(f"profile: expected {', '.join(TABLES)} or auto, got {profile!r}.")
    return constants_at(name, TABLES[profile][name], severity)


def describe(
    name: str,
    profile: Profile | Literal["auto"] = "auto",
    size: ImageSize | None = None,
    **params: Any,
) -> str:
    """What a result made with this corruption must say of it: constants, parameters, codec."""
    entry = corruptions.get(name)
    settings = entry.validate(params)
    if profile == "auto" and size is not None:
        profile = profile_for(size)
    parts = [f"{profile} constants", *(f"{key}={value}" for key, value in settings.items())]
    if entry.tags.note:
        parts.append(entry.tags.note)
    return f"{name} ({', '.join(parts)})"


def image_size(images: Tensor) -> ImageSize:
    """Height and width of a batch."""
    return ImageSize(images.shape[-2], images.shape[-1])


def _check_images(images: Tensor) -> None:
    if not isinstance(images, Tensor):
        raise BadDataError(
            f"expected images as a torch tensor or one PIL image, got {type(images).__name__}.",
            hint="Of arrays N x H x W x 3: torch.from_numpy(images).permute(0, 3, 1, 2).",
        )
    if images.ndim != 4 or images.shape[1] != 3:
        raise BadDataError(
            f"expected images as N x 3 x H x W, got shape {tuple(images.shape)}.",
            hint="Repeat a grey channel three times; add a batch axis to a single picture.",
        )
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise BadDataError(f"expected images as uint8 or float in [0, 1], got {images.dtype}.")
    if min(images.shape[-2:]) < SMALLEST_SIDE:
        raise BadDataError(
            f"expected images of at least {SMALLEST_SIDE} px a side, got {image_size(images)}."
        )
    if images.is_floating_point() and images.numel():
        low, high = (float(value) for value in images.detach().aminmax())
        if not -_HALF_A_LEVEL <= low <= high <= 1 + _HALF_A_LEVEL:  # NaN fails every comparison
            raise BadDataError(
                f"expected float images in [0, 1], got values from {low:g} to {high:g}.",
                hint="Undo the normalisation, or divide by 255; corruptions are of plain pixels.",
            )


def _seeds(seed: int | Sequence[int], count: int) -> Sequence[int]:
    if isinstance(seed, int | np.integer):
        return range(int(seed), int(seed) + count)
    expected = f"seed: expected one int, or one per image ({count}), got"
    try:
        seeds = [operator.index(one) for one in seed]
    except TypeError:
        raise BadParameterError(f"{expected} {seed!r}.") from None
    if len(seeds) != count:
        raise BadParameterError(f"{expected} {len(seeds)}.")
    return seeds


def _to_levels(images: Tensor) -> Tensor:
    return (images.float() * 255).round_().clamp_(0, 255).to(torch.uint8)
