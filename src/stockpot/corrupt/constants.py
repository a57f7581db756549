"""The strengths of all corruptions, as four sets were made: for 224, 299, 64 and 32 px.

ImageNet-C, its variant for Inception networks, Tiny-ImageNet-C and CIFAR-10-C have constants of
their own, since a blur of ten pixels is another thing at each size. The
sets that came after it (ImageNet-C-bar, LAION-C) have tables of their own, which are joined here.

Each row holds severities 1 to 5; the comment above it names what the numbers are. They are the
constants of the benchmark's authors (Hendrycks and Dietterich, arXiv:1903.12261, Apache-2.0 code).
Lengths are in pixels unless a comment says "of the side".
"""

from __future__ import annotations

from typing import Literal

from stockpot.corrupt.bar import strengths as bar
from stockpot.corrupt.laion.strengths import LAION_C
from stockpot.types import ImageSize

Profile = Literal["imagenet", "inception", "tinyimagenet", "cifar"]
Constants = tuple[float, ...]
Rows = tuple[Constants, ...]
"""Five rows."""

# The original wrote 244 where 224 was meant; the published files carry it, so it stays.
_SIDE = 244 / 224

IMAGENET: dict[str, Rows] = {
    # standard deviation
    "gaussian_noise": ((0.08,), (0.12,), (0.18,), (0.26,), (0.38,)),
    # photons at white
    "shot_noise": ((60,), (25,), (12,), (5,), (3,)),
    # share of values hit
    "impulse_noise": ((0.03,), (0.06,), (0.09,), (0.17,), (0.27,)),
    # standard deviation, relative to the value
    "speckle_noise": ((0.15,), (0.2,), (0.35,), (0.45,), (0.6,)),
    # sigma
    "gaussian_blur": ((1,), (2,), (3,), (4,), (6,)),
    # radius of the disk, sigma of its antialiasing
    "defocus_blur": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    # sigma, largest step, passes
    "glass_blur": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    # radius, sigma
    "motion_blur": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    # end of the range of factors (from 1), its step
    "zoom_blur": ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    # mean, deviation, zoom, threshold, radius and sigma of the streaks, share of the picture kept
    "snow": (
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
    # weight of the picture, weight of the overlay, scale of the overlay
    "frost": ((1, 0.4, 1), (0.8, 0.6, 1), (0.7, 0.7, 1), (0.65, 0.7, 1), (0.6, 0.75, 1)),
    # strength, decay of the roughness per octave
    "fog": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    # shift of the HSV value
    "brightness": ((0.1,), (0.2,), (0.3,), (0.4,), (0.5,)),
    # factor on the distance from each channel's mean
    "contrast": ((0.4,), (0.3,), (0.2,), (0.1,), (0.05,)),
    # factor on the HSV saturation, shift
    "saturate": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
    # displacement, sigma of its smoothing, shift of the affine corners; all of the side
    "elastic_transform": (
        (2 * _SIDE, 0.7 * _SIDE, 0.1 * _SIDE),
        (2 * _SIDE, 0.08 * _SIDE, 0.2 * _SIDE),
        (0.05 * _SIDE, 0.01 * _SIDE, 0.02 * _SIDE),
        (0.07 * _SIDE, 0.01 * _SIDE, 0.02 * _SIDE),
        (0.12 * _SIDE, 0.01 * _SIDE, 0.02 * _SIDE),
    ),
    # resolution left, of the side
    "pixelate": ((0.6,), (0.5,), (0.4,), (0.3,), (0.25,)),
    # quality
    "jpeg_compression": ((25,), (18,), (15,), (10,), (7,)),
    # mean, deviation, sigma, threshold, strength (water) or sigma (mud), 0 for water and 1 for mud
    "spatter": (
        (0.65, 0.3, 4, 0.69, 0.6, 0),
        (0.65, 0.3, 3, 0.68, 0.6, 0),
        (0.65, 0.3, 2, 0.68, 0.5, 0),
        (0.65, 0.3, 1, 0.65, 1.5, 1),
        (0.67, 0.4, 1, 0.65, 1.5, 1),
    ),
}

CIFAR: dict[str, Rows] = {
    "gaussian_noise": ((0.04,), (0.06,), (0.08,), (0.09,), (0.1,)),
    "shot_noise": ((500,), (250,), (100,), (75,), (50,)),
    "impulse_noise": ((0.01,), (0.02,), (0.03,), (0.05,), (0.07,)),
    "speckle_noise": ((0.06,), (0.1,), (0.12,), (0.16,), (0.2,)),
    "gaussian_blur": ((0.4,), (0.6,), (0.7,), (0.8,), (1,)),
    "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    "zoom_blur": ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
    "snow": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    "frost": ((1, 0.2, 0.2), (1, 0.3, 0.2), (0.9, 0.4, 0.2), (0.85, 0.4, 0.2), (0.75, 0.45, 0.2)),
    "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    "brightness": ((0.05,), (0.1,), (0.15,), (0.2,), (0.3,)),
    "contrast": ((0.75,), (0.5,), (0.4,), (0.3,), (0.15,)),
    "saturate": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
    "elastic_transform": (
        (0, 0, 0.08),
        (0.05, 0.2, 0.07),
        (0.08, 0.06, 0.06),
        (0.1, 0.04, 0.05),
        (0.1, 0.03, 0.03),
    ),
    "pixelate": ((0.95,), (0.9,), (0.85,), (0.75,), (0.65,)),
    "jpeg_compression": ((80,), (65,), (58,), (50,), (40,)),
    "spatter": (
        (0.62, 0.1, 0.7, 0.7, 0.5, 0),
        (0.65, 0.1, 0.8, 0.7, 0.5, 0),
        (0.65, 0.3, 1, 0.69, 0.5, 0),
        (0.65, 0.1, 0.7, 0.69, 0.6, 1),
        (0.65, 0.1, 0.5, 0.68, 0.6, 1),
    ),
}

# Here the original wrote 360 where 299 was meant. What is not listed is as at 224 px.
_INCEPTION_SIDE = 360 / 299

INCEPTION: dict[str, Rows] = {
    **IMAGENET,
    "gaussian_noise": ((0.09,), (0.13,), (0.19,), (0.27,), (0.4,)),
    "shot_noise": ((50,), (20,), (10,), (5,), (3,)),
    "impulse_noise": ((0.04,), (0.07,), (0.1,), (0.18,), (0.28,)),
    "speckle_noise": ((0.16,), (0.21,), (0.36,), (0.46,), (0.61,)),
    "gaussian_blur": ((1.5,), (2.5,), (3.5,), (4.5,), (6.5,)),
    "defocus_blur": ((4, 0.1), (5, 0.5), (7, 0.5), (10, 0.5), (12, 0.5)),
    "glass_blur": ((0.8, 1, 3), (1, 3, 1), (1.1, 2, 4), (1.2, 4, 2), (1.6, 5, 2)),
    "motion_blur": ((12, 4), (17, 6), (17, 9), (17, 13), (22, 16)),
    "fog": ((1.5, 2), (2, 2), (2.5, 1.8), (2.5, 1.6), (3, 1.5)),
    "elastic_transform": (
        (2 * _INCEPTION_SIDE, 0.7 * _INCEPTION_SIDE, 0.1 * _INCEPTION_SIDE),
        (2 * _INCEPTION_SIDE, 0.08 * _INCEPTION_SIDE, 0.2 * _INCEPTION_SIDE),
        (0.05 * _INCEPTION_SIDE, 0.01 * _INCEPTION_SIDE, 0.02 * _INCEPTION_SIDE),
        (0.07 * _INCEPTION_SIDE, 0.01 * _INCEPTION_SIDE, 0.02 * _INCEPTION_SIDE),
        (0.12 * _INCEPTION_SIDE, 0.01 * _INCEPTION_SIDE, 0.02 * _INCEPTION_SIDE),
    ),
    "pixelate": ((0.5,), (0.4,), (0.3,), (0.25,), (0.2,)),
    "jpeg_compression": ((23,), (16,), (13,), (8,), (5,)),
    "spatter": (
        (0.65, 0.3, 4, 0.69, 0.9, 0),
        (0.65, 0.3, 3.5, 0.68, 0.9, 0),
        (0.65, 0.3, 3, 0.68, 0.8, 0),
        (0.65, 0.3, 1.2, 0.65, 1.8, 1),
        (0.67, 0.4, 1.2, 0.65, 1.8, 1),
    ),
}

TINYIMAGENET: dict[str, Rows] = {
    "gaussian_noise": ((0.04,), (0.08,), (0.12,), (0.15,), (0.18,)),
    "shot_noise": ((250,), (100,), (50,), (30,), (15,)),
    "impulse_noise": ((0.01,), (0.02,), (0.05,), (0.08,), (0.14,)),
    "speckle_noise": ((0.15,), (0.2,), (0.25,), (0.3,), (0.35,)),
    "gaussian_blur": ((0.5,), (0.75,), (1,), (1.25,), (1.5,)),
    "defocus_blur": ((0.5, 0.6), (1, 0.1), (1.5, 0.1), (2.5, 0.01), (3, 0.1)),
    "glass_blur": ((0.1, 1, 1), (0.5, 1, 1), (0.6, 1, 2), (0.7, 2, 1), (0.9, 2, 2)),
    "motion_blur": ((10, 1), (10, 1.5), (10, 2), (10, 2.5), (12, 3)),
    "zoom_blur": ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
    "snow": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.8),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.8),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.7),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.65),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.6),
    ),
    "frost": ((1, 0.3, 0.3), (0.9, 0.4, 0.3), (0.8, 0.45, 0.3), (0.75, 0.5, 0.3), (0.7, 0.55, 0.3)),
    "fog": ((0.4, 3), (0.7, 3), (1, 2.5), (1.5, 2), (2, 1.75)),
    "brightness": ((0.1,), (0.2,), (0.3,), (0.4,), (0.5,)),
    "contrast": ((0.4,), (0.3,), (0.2,), (0.1,), (0.05,)),
    "saturate": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (30, 0.2)),
    "elastic_transform": (
        (0, 0, 0.08),
        (0.05, 0.3, 0.06),
        (0.1, 0.08, 0.06),
        (0.1, 0.03, 0.03),
        (0.16, 0.03, 0.02),
    ),
    "pixelate": ((0.9,), (0.8,), (0.7,), (0.6,), (0.5,)),
    "jpeg_compression": ((65,), (58,), (50,), (40,), (25,)),
    "spatter": (
        (0.62, 0.1, 0.7, 0.7, 0.6, 0),
        (0.65, 0.1, 0.8, 0.7, 0.6, 0),
        (0.65, 0.3, 1, 0.69, 0.6, 0),
        (0.65, 0.1, 0.7, 0.68, 0.6, 1),
        (0.65, 0.1, 0.5, 0.67, 0.6, 1),
    ),
}


def _single(table: dict[str, bar.Strengths]) -> dict[str, Rows]:
    """Rows of one constant each."""
    return {name: ((a,), (b,), (c,), (d,), (e,)) for name, (a, b, c, d, e) in table.items()}


STYLE: dict[str, Rows] = {
    # how far on the way to another picture's statistics
    "style_transfer": ((0.2,), (0.4,), (0.6,), (0.8,), (1.0,)),
}

TABLES: dict[Profile, dict[str, Rows]] = {
    "imagenet": IMAGENET | _single(bar.LARGE) | LAION_C | STYLE,
    "inception": INCEPTION | _single(bar.LARGE) | LAION_C | STYLE,
    "tinyimagenet": TINYIMAGENET | _single(bar.SMALL) | LAION_C | STYLE,
    "cifar": CIFAR | _single(bar.SMALL) | LAION_C | STYLE,
}
NATIVE_SIDE: dict[Profile, int] = {
    "imagenet": 224,
    "inception": 299,
    "tinyimagenet": 64,
    "cifar": 32,
}


def profile_for(size: ImageSize) -> Profile:
    """The `auto` rule: the profile whose native side is nearest in ratio to the shorter side.

    The borders are geometric means: up to 45 px `cifar`, up to 119 `tinyimagenet`, up to 258
    `imagenet`, and `inception` from 259 on.
    """
    side = min(size)

    def apart(name: Profile) -> float:
        return max(NATIVE_SIDE[name] / side, side / NATIVE_SIDE[name])

    return min(NATIVE_SIDE, key=apart)
