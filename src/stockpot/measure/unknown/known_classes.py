"""Images of a foreign set that are not foreign: their class is one that the model knows.

Names are compared as scoring compares them: without regard to case, spaces, hyphens, underscores,
and ImageNet's classes also by WordNet's ids and words. A set that shows known things under other
names is not found out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.natural.classes import plain, word_places
from stockpot.errors import BadDataError
from stockpot.results.schema import Flag

Overlapping = Literal["leave_out", "keep"]
KNOWN_CLASSES = "known_classes"
"""The flag of sets that share classes with the model."""


def foreign(
    name: str, data: Dataset, known: Sequence[str], overlap: Overlapping
) -> tuple[Dataset, list[str], Flag | None]:
    """The foreign images of a set, what there is to say, and the flag for it."""
    marks = {_mark(each) for each in known}
    shared = [number for number, each in enumerate(data.classes) if _mark(each) in marks]
    own = np.isin(data.labels.numpy(), shared)
    if not own.any():
        return data, [], None
    names = [data.classes[number] for number in shared if (data.labels == number).any()]
    listing = ", ".join(names[:5]) + (", ..." if names[5:] else "")
    what = "left out" if overlap == "leave_out" else "kept"
    told = f"{name}: {int(own.sum())} of {len(data)} images are of classes that the model knows"
    if overlap == "leave_out":
        if own.all():
            raise BadDataError(
                f"{told} ({listing}): nothing foreign is left.",
                hint="Take another set, or overlap=keep.",
            )
        data = data.take(np.flatnonzero(~own).tolist())
    flag = Flag(name=KNOWN_CLASSES, count=int(own.sum()), of=len(own), condition={"set": name})
    return data, [f"{told} and are {what}: {listing}"], flag


def _mark(name: str) -> str | int:
    return word_places().get(plain(name), plain(name))
