"""Which output of a model stands for which of ImageNet's 1000 classes.

Models of ImageNet agree on the order of their outputs and on little else: some name classes by
all of WordNet's words, some by one, some by id, some by number, and some have a background class
before the rest. Names therefore confirm an order; they decide only where there is none.
"""

from __future__ import annotations

import re
from functools import lru_cache

from stockpot.datasets.natural.classes import plain, word_places

COUNT = 1000
LEAST_AGREEMENT = 0.4
"""The share of names that must be known and in place; hand-polished lists keep about half."""
MOST_CONTRADICTION = 0.02
NUMBER = re.compile(r"(?:label[ _])?(\d+)", re.IGNORECASE)


@lru_cache(maxsize=64)
def imagenet_outputs(classes: tuple[str, ...]) -> tuple[int, ...] | None:
    """For each of the 1000 the output that stands for it; none if the model has other classes."""
    for skipped in (0, 1):
        if len(classes) == COUNT + skipped and _in_order(classes[skipped:]):
            return tuple(range(skipped, COUNT + skipped))
    known = word_places()
    found = {known[plain(name)]: row for row, name in enumerate(classes) if plain(name) in known}
    return tuple(found[place] for place in range(COUNT)) if len(found) == COUNT else None


def _in_order(names: tuple[str, ...]) -> bool:
    numbers = [NUMBER.fullmatch(name) for name in names]
    if all(numbers):
        found = [int(match.group(1)) for match in numbers if match]
        return found in (list(range(COUNT)), list(range(1, COUNT + 1)))
    places = [word_places().get(plain(name)) for name in names]
    known = sum(place is not None for place in places)
    agree = sum(place == row for row, place in enumerate(places))
    return agree >= LEAST_AGREEMENT * COUNT and known - agree <= MOST_CONTRADICTION * COUNT
