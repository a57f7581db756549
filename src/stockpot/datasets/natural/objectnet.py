"""ObjectNet: everyday things from odd angles, with a red border that must come off first."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from PIL import Image
from torch import Tensor

from stockpot.datasets import datasets
from stockpot.datasets.dataset import Dataset, Images
from stockpot.datasets.natural.classes import objectnet_classes
from stockpot.datasets.natural.layout import Layout, NaturalSet
from stockpot.datasets.natural.public import Source, load_public
from stockpot.datasets.stream.file_check import OnBroken
from stockpot.datasets.stream.geometry import Fit
from stockpot.errors import BadParameterError


@dataclass(frozen=True)
class Bordered:
    """Pictures whose outermost pixels are cut away before anything else is done with them."""

    images: Images
    border: int

    def __len__(self) -> int:
        return len(self.images)

    def take(self, index: Sequence[int]) -> Bordered:
        """The pictures of these rows, in this order."""
        return Bordered(self.images.take(index), self.border)

    def batches(self, size: int, fit: Fit | None) -> Iterator[Tensor]:
        """Consecutive batches without the border."""
        return self.images.batches(size, partial(_inside, border=self.border, fit=fit))

    def several(self, size: int, fits: Sequence[Fit | None]) -> Iterator[tuple[Tensor, ...]]:
        """The same batches through several fits."""
        return self.images.several(
            size, [partial(_inside, border=self.border, fit=fit) for fit in fits]
        )


def _inside(picture: Image.Image, border: int, fit: Fit | None) -> Image.Image:
    cut = picture.crop((border, border, picture.width - border, picture.height - border))
    return fit(cut) if fit else cut


_NUMBERS = {each.folder: number for number, each in enumerate(objectnet_classes())}

OBJECTNET = NaturalSet(
    "objectnet",
    Layout(("objectnet-1.0/images", "objectnet/images", "objectnet"), ("images",)),
    tuple(each.name for each in objectnet_classes()),
    _NUMBERS.get,
    licence="CC-BY-4.0, not for training",
    selective=True,
)


@datasets.register("objectnet", paper="doi:10.5555/3454287.3455135")
def objectnet(
    *,
    path: str,
    border: int = 2,
    config: str | None = None,
    image: str | None = None,
    label: str | None = None,
    hub_split: str | None = None,
    on_broken: OnBroken = "stop",
) -> Dataset:
    """ObjectNet: household things in odd places and poses; its 113 classes that ImageNet has.

    The other 200 folders are left aside. A class can be answered by several ImageNet classes (an
    alarm clock by analog and digital clock); see `class_space` of the measures for how that is
    scored.

    Args:
        path: the folder `objectnet-1.0` or its `images`, a folder of several sets, or a hub id.
        border: pixels to cut from each side: every image has a red border of 1 px, and 2 also
            take what lossy copies smear; 0 keeps it.
        config: the configuration of a hub dataset that has several.
        image: the hub data's column of pictures; found when not given.
        label: the hub data's column of labels; found when not given.
        hub_split: the split as the hub names it.
        on_broken: what to do with files that cannot be decoded: stop and name them, or skip them.
    """
    if border < 0:
        raise BadParameterError(f"border: expected 0 or more pixels, got {border}.")
    source = Source(path, config, image, label, on_broken, hub_split)
    data = load_public(OBJECTNET, source, "test")
    return replace(
        data,
        images=Bordered(data.images, border),
        fingerprint=hashlib.sha256(f"{data.fingerprint}:{border}".encode()).hexdigest(),
    )
