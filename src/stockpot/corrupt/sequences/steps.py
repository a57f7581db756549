"""How the sequences of ImageNet-P, Tiny-ImageNet-P and CIFAR-10-P go on from frame to frame.

The numbers are those of the authors' scripts (hendrycks/robustness, `make_imagenet_p.py`,
`make_tinyimagenet_p.py`, `make_cifar_p.py`, Apache-2.0). Lengths are pixels at 224, 64 and 32 px.
"""

from __future__ import annotations

from dataclasses import dataclass

from stockpot.corrupt.constants import Profile

PERTURBATIONS: tuple[str, ...] = (
    *("gaussian_noise", "shot_noise", "motion_blur", "zoom_blur", "snow"),
    *("brightness", "translate", "rotate", "tilt", "scale"),
)
"""The ten that the means run over."""
EXTRA: tuple[str, ...] = ("speckle_noise", "gaussian_blur")
"""Offered for validation; the authors' spatter and shear are not made here."""
DIFFICULTIES = (1, 2, 3)


@dataclass(frozen=True)
class Steps:
    """The numbers of one published set."""

    gaussian_noise: tuple[float, float, float]
    """Deviations, by difficulty."""
    shot_noise: tuple[float, float, float]
    """Photons at white, by difficulty."""
    speckle_noise: tuple[float, float, float]
    motion_blur: tuple[int, int, float, float]
    """Frames, radius, sigma, degrees per frame; the last frame lies at 0 degrees."""
    snow: tuple[float, float, int, float]
    """Deviation and zoom of the flakes, radius and sigma of their streaks."""
    brightness: float
    """Per frame, fifteen frames either way."""
    translate: tuple[int, int]
    """First and last shift."""
    tilt: float
    """Degrees per frame, fifteen frames either way."""
    scale: tuple[float, float]
    """Of the first frame, and more per frame."""
    gaussian_blur: tuple[float, float, float]
    """Sigma of the first frame, more per frame, and where the kernel ends in sigmas."""


_LARGE = Steps(
    gaussian_noise=(0.03, 0.05, 0.08),
    shot_noise=(300, 120, 60),
    speckle_noise=(0.05, 0.10, 0.15),
    motion_blur=(31, 10, 3, 4),
    snow=(0.3, 3, 14, 4),
    brightness=0.02,
    translate=(-20, 20),
    tilt=1,
    scale=(0.4, 0.025),
    gaussian_blur=(0.25, 0.035, 6),
)
_SMALL = Steps(
    gaussian_noise=(0.02, 0.04, 0.06),
    shot_noise=(700, 400, 200),
    speckle_noise=(0.05, 0.07, 0.1),
    motion_blur=(21, 6, 1.8, 9),
    snow=(0.3, 2, 10, 2),
    brightness=0.015,
    translate=(-7, 8),
    tilt=0.75,
    scale=(0.7, 0.02),
    gaussian_blur=(0.3, 0.015, 7),
)
STEPS: dict[Profile, Steps] = {
    "imagenet": _LARGE,
    # Published at 299 px as well, but from pictures squeezed before they move; those of 224 px.
    "inception": _LARGE,
    "tinyimagenet": Steps(
        gaussian_noise=(0.025, 0.05, 0.075),
        shot_noise=(500, 250, 125),
        speckle_noise=(0.05, 0.1, 0.15),
        # Published blurred before they are made small; here the streaks of 32 px.
        motion_blur=(31, 6, 1.8, 5),
        snow=(0.28, 2, 10, 2.5),
        brightness=0.02,
        translate=(-15, 15),
        tilt=1,
        scale=(0.4, 0.025),
        gaussian_blur=(0.35, 0.014, 7),
    ),
    "cifar": _SMALL,
}
