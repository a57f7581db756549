"""Published sets of corrupted pictures with corruptions of their own, by the names of these.

Those whose corruptions `corrupt` knows can be made as well; the others are only read. ImageNet-C
and what shares its corruptions is in `corrupt`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple


class Family(NamedTuple):
    """One published set."""

    name: str
    corruptions: tuple[str, ...]
    """The ones that its mean runs over."""
    extra: tuple[str, ...] = ()
    graded: bool = True
    """Whether each corruption has severities."""


FAMILIES = (
    # arXiv:2102.11273, folders of imagenet_c_bar.tar.gz
    Family(
        "ImageNet-C-bar",
        (
            *("blue_noise_sample", "brownish_noise", "caustic_refraction", "checkerboard_cutout"),
            *("cocentric_sine_waves", "inverse_sparkles", "perlin_noise", "plasma_noise"),
            *("single_frequency_greyscale", "sparkles"),
        ),
    ),
    # The same publication, arrays that its authors' script writes.
    Family(
        "CIFAR-10-C-bar",
        (
            *("blue_noise_sample", "brownish_noise", "checkerboard_cutout", "circular_motion_blur"),
            *("inverse_sparkles", "lines", "pinch_and_twirl", "ripple", "sparkles"),
            "transverse_chromatic_abberation",
        ),
    ),
    # arXiv:2506.16950, folders of its release
    Family(
        "LAION-C",
        (
            *("geometric_shapes", "glitched", "luminance_checkerboard", "mosaic", "stickers"),
            "vertical_lines",
        ),
    ),
    # Not published as a set: style transfer by feature statistics (arXiv:1703.06868).
    Family("Style", ("style_transfer",)),
    # arXiv:2203.01441
    Family(
        "ImageNet-3DCC",
        (
            *("near_focus", "far_focus", "bit_error", "color_quant", "flash", "fog_3d", "h265_abr"),
            *("h265_crf", "iso_noise", "low_light", "xy_motion_blur", "z_motion_blur"),
        ),
    ),
    # arXiv:1906.02337, folders of mnist_c.zip
    Family(
        "MNIST-C",
        (
            *("shot_noise", "impulse_noise", "glass_blur", "motion_blur", "shear", "scale"),
            *("rotate", "brightness", "translate", "stripe", "fog", "spatter", "dotted_line"),
            *("zigzag", "canny_edges"),
        ),
        extra=("identity",),
        graded=False,
    ),
)


def foreign_names() -> tuple[str, ...]:
    """Every corruption of these sets."""
    names = (name for each in FAMILIES for name in (*each.corruptions, *each.extra))
    return tuple(dict.fromkeys(names))


def family_of(there: Collection[str], graded: bool) -> Family | None:
    """The set that most of these corruptions belong to.

    Args:
        there: the corruptions of a folder.
        graded: whether they have severities there. MNIST-C has none, and shares names with others.
    """

    def present(family: Family) -> int:
        return sum(name in there for name in family.corruptions)

    best = max((each for each in FAMILIES if each.graded == graded), key=present)
    return best if present(best) else None
