"""The strengths of the corruptions of ImageNet-C-bar and CIFAR-10-C-bar, severities 1 to 5.

Ten of each are the published sets (arXiv:2102.11273, files `imagenet_c_bar.csv` and
`cifar10_c_bar.csv` of its authors). What only one of the two sets has is given at the other size
too: every second of the ten strengths among which the authors searched (`*_new_corruptions.csv`).
A strength is a share of ten of each corruption's own largest value.
"""

from __future__ import annotations

Strengths = tuple[float, float, float, float, float]

IMAGENET_C_BAR: dict[str, Strengths] = {
    "blue_noise_sample": (0.8, 1.6, 2.4, 4.0, 5.6),
    "brownish_noise": (1.0, 2.0, 3.0, 4.0, 5.0),
    "caustic_refraction": (2.35, 3.2, 4.9, 6.6, 9.15),
    "checkerboard_cutout": (2.0, 3.0, 4.0, 5.0, 6.0),
    "cocentric_sine_waves": (3.0, 5.0, 8.0, 9.0, 10.0),
    "inverse_sparkles": (1.0, 2.0, 4.0, 9.0, 10.0),
    "perlin_noise": (4.6, 5.2, 5.8, 7.6, 8.8),
    "plasma_noise": (4.75, 7.0, 8.5, 9.25, 10.0),
    "single_frequency_greyscale": (1.0, 1.5, 2.0, 4.5, 5.0),
    "sparkles": (1.0, 2.0, 3.0, 5.0, 6.0),
}
CIFAR_10_C_BAR: dict[str, Strengths] = {
    "blue_noise_sample": (0.7, 1.4, 2.1, 3.5, 4.2),
    "brownish_noise": (2.5, 4.0, 5.5, 6.5, 7.0),
    "checkerboard_cutout": (1.0, 2.0, 3.0, 4.0, 5.0),
    "circular_motion_blur": (2.8, 3.6, 4.4, 5.2, 6.0),
    "inverse_sparkles": (1.0, 1.5, 2.5, 4.5, 5.0),
    "lines": (0.5, 1.0, 1.5, 2.0, 2.5),
    "pinch_and_twirl": (5.5, 6.0, 6.5, 8.5, 10.0),
    "ripple": (5.5, 6.0, 6.5, 7.5, 8.0),
    "sparkles": (0.7, 3.5, 5.6, 6.3, 7.0),
    "transverse_chromatic_abberation": (1.0, 2.0, 5.0, 9.0, 10.0),
}

LARGE: dict[str, Strengths] = {
    **IMAGENET_C_BAR,
    "circular_motion_blur": (3.2, 4.9, 6.6, 8.3, 10.0),
    "lines": (1.6, 3.2, 4.8, 6.4, 8.0),
    "pinch_and_twirl": (4.8, 6.1, 7.4, 8.7, 10.0),
    "ripple": (4.0, 5.5, 7.0, 8.5, 10.0),
    "transverse_chromatic_abberation": (2.0, 4.0, 6.0, 8.0, 10.0),
}
"""For 224 and 299 px."""
SMALL: dict[str, Strengths] = {
    **CIFAR_10_C_BAR,
    "caustic_refraction": (1.8, 2.6, 3.4, 4.2, 5.0),
    "cocentric_sine_waves": (1.0, 2.0, 3.0, 4.0, 5.0),
    "perlin_noise": (5.2, 6.4, 7.6, 8.8, 10.0),
    "plasma_noise": (1.4, 2.8, 4.2, 5.6, 7.0),
    "single_frequency_greyscale": (0.6, 1.2, 1.8, 2.4, 3.0),
}
"""For 32 and 64 px."""
