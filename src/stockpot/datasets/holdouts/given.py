"""Options that go with any dataset: lists of families and concepts, a protocol, broad classes.

`families`, `concepts` and their `exclude_` forms choose pictures. `protocol` with `hold_out` makes
two sides of the data: `split=train` is what is left, `split=test` what is held out. Data that can
be had whole are; other data keep their splits, and `split=seen` is the test split without what is
held out. Test pictures that look like a training one are left out, unless `twins` keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from stockpot.datasets.by_content.image_hashes import look_at
from stockpot.datasets.by_content.twins import have_twin
from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.datasets.holdouts.columns import LISTS, listed_rows
from stockpot.datasets.holdouts.protocols import HoldOut, held_out_rows, holding_out
from stockpot.datasets.holdouts.superclasses import with_superclasses
from stockpot.errors import BadDataError, BadParameterError, UnknownNameError, UserError

PROTOCOL_KEYS = ("protocol", "hold_out", "hold_out_each", "hold_out_seed", "twins")
KEYS = (*LISTS, "superclasses", *PROTOCOL_KEYS)
SIDES = ("train", "test", "seen")
LOOK_ALIKE = 10.0
"""Pictures whose thumbnails differ by at most so many levels look alike: drawings are flat, and two
faces of clocks that differ in a hand are further apart than two copies of a photograph."""


def chosen(
    load: Callable[[str | None], Dataset], split: str | None, given: Mapping[str, Any]
) -> Dataset:
    """The data that these options ask for.

    Args:
        load: loads a split as it is without them; `all` where it can be had whole.
        split: the split, or the side of the protocol.
        given: the options.
    """
    check_options(split, given)
    if "protocol" not in given:
        return _changed(load(split), given)
    asked = holding_out(
        given["protocol"],
        given.get("hold_out"),
        given.get("hold_out_each"),
        given.get("hold_out_seed", 0),
    )
    sides = _Sides(lambda part: _changed(load(part), given), asked)
    return sides.side(split or "test", keep_twins=bool(given.get("twins", False)))


def check_options(split: str | None, given: Mapping[str, Any]) -> None:
    """Raise for options that say nothing without a protocol, and for sides that none has."""
    if "protocol" in given:
        if split not in (None, *SIDES):
            raise UnknownNameError("side of a protocol", str(split), SIDES)
        holding_out(
            given["protocol"],
            given.get("hold_out"),
            given.get("hold_out_each"),
            given.get("hold_out_seed", 0),
        )
        return
    for key in PROTOCOL_KEYS[1:]:
        if key in given:
            raise BadParameterError(f"{key}: say which protocol: style, subtype or version.")


def _changed(data: Dataset, given: Mapping[str, Any]) -> Dataset:
    if "superclasses" in given:
        data = with_superclasses(data, given["superclasses"])
    lists = {key: given[key] for key in LISTS if key in given}
    return listed_rows(data, lists) if lists else data


class _Sides:
    """Both sides of a protocol: rows of the data as a whole, or of its training and test splits."""

    def __init__(self, load: Callable[[str | None], Dataset], asked: HoldOut) -> None:
        self._asked = asked
        try:
            self._own = self._other = load("all")
        except UserError:
            self._own, self._other = load("train"), load("test")
        self._whole = self._own is self._other
        if self._whole:
            self._train, self._test = held_out_rows(self._own, asked)
            self._seen: list[int] = []
            return
        # Decided on both together, so that both hold out the same.
        kept, held = held_out_rows(_joined(self._own, self._other), asked)
        start = len(self._own)
        self._train = [row for row in kept if row < start]
        self._seen = [row - start for row in kept if row >= start]
        self._test = [row - start for row in held if row >= start]

    def side(self, side: str, *, keep_twins: bool) -> Dataset:
        if side == "train":
            return self._named(self._own.take(self._train), side)
        if side == "seen" and self._whole:
            raise BadDataError(
                f"{self._own.name} has no test pictures beside its training pictures: no side "
                "`seen`."
            )
        rows = self._seen if side == "seen" else self._test
        if not keep_twins:
            trained = _thumbnails(self._own)[self._train]
            twins = have_twin(_thumbnails(self._other)[rows], trained, LOOK_ALIKE)
            rows = [row for row, twin in zip(rows, twins.tolist(), strict=True) if not twin]
        if not rows:
            raise BadDataError(
                f"{self._own.name}: nothing is left to test of {self._asked}; pictures that look "
                "like a training picture do not count.",
                hint="" if keep_twins else "Say twins=true to test on them too.",
            )
        return self._named(self._other.take(rows), side)

    def _named(self, data: Dataset, side: str) -> Dataset:
        return replace(data, split=f"{side}[{self._asked}]")


def _joined(first: Dataset, second: Dataset) -> Dataset:
    """What the columns of two splits say, without their pictures."""
    labels = torch.cat([first.labels, second.labels])
    both = [key for key in first.columns if key in second.columns]
    return replace(
        first,
        images=TensorImages(torch.zeros(len(labels), 3, 1, 1, dtype=torch.uint8)),
        labels=labels,
        columns={key: (*first.columns[key], *second.columns[key]) for key in both},
        masks=None,
    )


def _thumbnails(data: Dataset) -> NDArray[np.uint8]:
    """Of all pictures; kept by content, since both sides and several hold-outs ask for them."""
    if data.fingerprint not in _KEPT:
        if len(_KEPT) >= 4:
            _KEPT.clear()
        _KEPT[data.fingerprint] = look_at(data.images).thumbnails
    return _KEPT[data.fingerprint]


_KEPT: dict[str, NDArray[np.uint8]] = {}
