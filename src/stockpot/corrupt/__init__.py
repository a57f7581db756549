"""Published corruptions as batched, seeded functions on any device.

Fifteen corruptions make ImageNet-C; four more were published beside them so that a method may be
tuned without looking at the test. `BENCHMARK` must never serve as augmentation: a model trained on
a corruption is no longer measured by it. `EXTRA` is what validation may use. What came after it
(ImageNet-C-bar and others) are further families: the tag of a corruption names its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from stockpot.registry import Kind, Tags
from stockpot.verbs import speak


@dataclass(frozen=True, kw_only=True)
class CorruptionTags(Tags):
    """Where a corruption stands in the benchmark, and how it is applied."""

    group: Literal["noise", "blur", "weather", "digital"] | None = None
    """One of ImageNet-C's four; other families have none."""
    benchmark: bool = False
    """One of the fifteen; ImageNet-C's others are offered for validation."""
    family: str = "ImageNet-C"
    """The published set that it was made for first."""
    whole_batch: bool = False
    """It divides a batch itself."""
    note: str = ""
    """What a result made with it must say besides its constants."""


corruptions = Kind[Callable[..., Any]](
    "corruptions", noun="corruption", package="stockpot.corrupt"
).tagged(CorruptionTags)

GROUPS: dict[str, tuple[str, ...]] = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    "weather": ("snow", "frost", "fog", "brightness"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
}
"""The benchmark's four groups, in the order in which its tables print them."""

BENCHMARK: tuple[str, ...] = tuple(name for names in GROUPS.values() for name in names)
"""The fifteen that the benchmark averages over; never to be trained on."""

EXTRA: tuple[str, ...] = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
"""The four that are offered for validation."""

SEVERITIES: tuple[int, ...] = (1, 2, 3, 4, 5)

speak(__name__, "stockpot.corrupt.apply:corrupt")

__all__ = ["BENCHMARK", "EXTRA", "GROUPS", "SEVERITIES", "corruptions"]
