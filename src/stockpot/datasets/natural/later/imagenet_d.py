"""ImageNet-D: things made by a diffusion model on odd backgrounds, in odd textures, materials."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Literal

from stockpot.datasets import datasets
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.natural.classes import objectnet_classes
from stockpot.datasets.natural.later.attributed import load_attributed
from stockpot.datasets.natural.layout import Layout, NaturalSet
from stockpot.datasets.stream.file_check import OnBroken

ATTRIBUTES = ("background", "texture", "material")

# The classes are ObjectNet's 113, with these folders called otherwise (imgnet_d2imgnet_id.txt).
_RENAMED = {
    "bath_towel": "full_sized_towel",
    "cleaver": "butchers_knife",
    "coffee_or_french_press": "coffee_french_press",
    "dishcloth": "hand_towel_or_rag",
    "drying_rack_for_plates": "drying_rack_for_dishes",
    "gown": "dress",
    "matchstick": "match",
    "mixing_or_salad_bowl": "mixing_salad_bowl",
    "shopping_basket": "basket",
    "t_shirt": "t-shirt",
    "tea_cup": "drinking_cup",
    "teddy_bear": "stuffed_animal",
}
_NUMBERS = {each.folder: number for number, each in enumerate(objectnet_classes())}


def _number(folder: str) -> int | None:
    return _NUMBERS.get(_RENAMED.get(folder, folder))


IMAGENET_D = NaturalSet(
    "imagenet_d",
    Layout(("ImageNet-D", "imagenet-d", "imagenet_d")),
    tuple(each.name for each in objectnet_classes()),
    _number,
)


@datasets.register("imagenet_d", paper="arXiv:2403.18775")
def imagenet_d(
    *,
    path: str,
    attribute: Literal["all", "background", "texture", "material"] = "all",
    on_broken: OnBroken = "stop",
) -> Dataset:
    """ImageNet-D: 4,835 synthetic pictures of 113 classes, with the attribute that is unusual.

    The classes are ObjectNet's; the column `attribute` says background, texture or material.

    Args:
        path: the folder `ImageNet-D` with its three folders, or the folder above.
        attribute: one of the three, or all.
        on_broken: what to do with files that cannot be decoded: stop and name them, or skip them.
    """

    def says(place: PurePosixPath) -> Mapping[str, str] | None:
        found = place.parts[0] if len(place.parts) == 3 else ""
        wanted = ATTRIBUTES if attribute == "all" else (attribute,)
        return {"attribute": found} if found in wanted else None

    return load_attributed(
        IMAGENET_D, path, says, on_broken, shape="background/chair/picture.jpg", split=attribute
    )
