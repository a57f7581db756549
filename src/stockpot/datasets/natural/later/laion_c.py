"""LAION-C as published: six distortions at five levels, sixteen superclasses of ImageNet."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Literal

from stockpot.datasets import datasets
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.natural.classes import superclasses
from stockpot.datasets.natural.later.attributed import load_attributed
from stockpot.datasets.natural.layout import Layout, NaturalSet
from stockpot.datasets.stream.file_check import OnBroken

_LEVEL = "intensity_level_"
_NUMBERS = {each.folder: number for number, each in enumerate(superclasses())}

LAION_C = NaturalSet(
    "laion_c",
    Layout(("LAION-C", "laion-c", "laion_c")),
    tuple(each.name for each in superclasses()),
    _NUMBERS.get,
)
Distortion = Literal[
    "all",
    "geometric_shapes",
    "glitched",
    "luminance_checkerboard",
    "mosaic",
    "stickers",
    "vertical_lines",
]


@datasets.register("laion_c", paper="arXiv:2506.16950")
def laion_c(
    *,
    path: str,
    distortion: Distortion = "all",
    level: Literal[1, 2, 3, 4, 5] | None = None,
    on_broken: OnBroken = "stop",
) -> Dataset:
    """LAION-C: distorted pictures of sixteen superclasses, answered by the mean over their classes.

    Columns: `corruption` and `severity`. The clean pictures are no part of the release.

    Args:
        path: the folder of distortions, each with `intensity_level_1` to `5`, or the folder above.
        distortion: one of the six, or all.
        level: one of the five levels; without it all.
        on_broken: what to do with files that cannot be decoded: stop and name them, or skip them.
    """

    def says(place: PurePosixPath) -> Mapping[str, str] | None:
        if len(place.parts) != 4 or not place.parts[1].startswith(_LEVEL):
            return None
        found, severity = place.parts[0], place.parts[1].removeprefix(_LEVEL)
        if distortion not in ("all", found) or level not in (None, int(severity)):
            return None
        return {"corruption": found, "severity": severity}

    shape = "glitched/intensity_level_1/fish/picture.JPEG"
    split = distortion if level is None else f"{distortion}-{level}"
    return load_attributed(LAION_C, path, says, on_broken, shape=shape, split=split)
