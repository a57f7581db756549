"""Rules against a model, measured in growing blocks of images until they are decided.

Images come in a random order that the seed settles (groups of them whole). After every block each
rule is looked at (`tracked.py`); a measure is taken on further images only while one of its rules
is undecided, and all ends when none is, or when there are no images left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from stockpot.errors import BadParameterError, UserError
from stockpot.gate.evidence import by_image, conditions, evidence
from stockpot.gate.outcome import Outcome, Status
from stockpot.gate.rule import Rule
from stockpot.gate.tracked import Tracked
from stockpot.results.schema import CellResult

FIRST, GROWTH = 64, 1.5
Look = Callable[[str, NDArray[np.int64]], tuple[CellResult, CellResult | None]]
"""Measure so on these rows: the model's result, and the baseline's where there is one."""
Told = Callable[[int, Sequence[Status]], None]


def block_sizes(n: int, first: int = FIRST, growth: float = GROWTH) -> Iterator[int]:
    """How many images each block ends at."""
    if first < 1:
        raise BadParameterError(f"block: expected at least 1 image, got {first}.")
    end = min(first, n)
    while True:
        yield end
        if end >= n:
            return
        end = min(n, max(end + 1, round(end * growth)))


def shuffled(n: int, groups: NDArray[np.int64] | None, seed: int) -> list[NDArray[np.int64]]:
    """Rows in random order, those of a group together."""
    owners = np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1]
    order = np.argsort(owners, kind="stable")
    starts = np.flatnonzero(np.diff(owners[order], prepend=-1))
    parts = np.split(order, starts[1:])
    drawn = np.random.default_rng(seed).permutation(len(parts))
    return [parts[place] for place in drawn]


def watch(
    rules: Sequence[Rule],
    order: Sequence[NDArray[np.int64]],
    look: Look,
    *,
    grouped: bool = False,
    classes: Sequence[str] = (),
    first: int = FIRST,
    growth: float = GROWTH,
    told: Told | None = None,
    data: str = "",
) -> tuple[list[Outcome], list[int], dict[str, int]]:
    """Look at images block by block until every rule is decided.

    Args:
        rules: the requirements; all about means over images.
        order: rows in the order in which they are looked at, those of a group together.
        look: measures.
        grouped: whether rows of one entry of `order` belong together.
        classes: those that occur among the images, for rules about each of them.
        first: images of the first block.
        growth: how much larger the sum of images is after each further block.
        told: called after each block with the images so far and where each rule stands.
        data: the name of the data.

    Returns:
        The outcomes, at how many images each look was, and how many images each measure saw.
    """
    sizes = np.cumsum([len(part) for part in order])
    total = int(sizes[-1])
    largest = max(len(part) for part in order) if grouped else 1
    tracked = [Tracked(rule, total, largest) for rule in rules]
    for one in tracked:
        one.rule.fits_shares()
        if one.rule.data not in ("", data):
            raise UserError(f"{one.rule.text}: it is about {one.rule.data}, and --data is {data}.")
        if one.rule.kind == "each_class":
            one.names = tuple(classes)
        if not by_image(one.rule.target.measure, one.rule.target):
            raise BadParameterError(
                f"{one.rule.target} is not a mean over images and cannot be decided in blocks.",
                hint="Measure the model (`stockpot measure -o DIR`) and check the results.",
            )
    looked: dict[str, int] = {}
    ends: list[int] = []
    start = 0
    for size in block_sizes(total, first, growth):
        end = int(np.searchsorted(sizes, size)) + 1
        entries, start = order[start:end], end
        if not entries:
            continue
        rows = np.concatenate(entries)
        owners = np.repeat(np.arange(len(entries)), [len(part) for part in entries])
        _block(tracked, rows, owners if grouped else None, look, looked)
        ends.append(int(sizes[end - 1]))
        if told:
            told(ends[-1], [one.status for one in tracked])
        if all(one.status != "not decided" for one in tracked):
            break
    return [one.outcome(data) for one in tracked], ends, looked


def _block(
    tracked: Sequence[Tracked],
    rows: NDArray[np.int64],
    owners: NDArray[np.int64] | None,
    look: Look,
    looked: dict[str, int],
) -> None:
    waiting = [one for one in tracked if one.status == "not decided"]
    for measure in dict.fromkeys(one.rule.target.measure for one in waiting):
        cell, other = look(measure, rows)
        looked[measure] = looked.get(measure, 0) + len(rows)
        for one in waiting:
            if one.rule.target.measure == measure:
                _said(one, cell, other, owners)
                one.n += len(rows)
                one.look(last=one.n >= one.total)


def _said(
    one: Tracked, cell: CellResult, other: CellResult | None, owners: NDArray[np.int64] | None
) -> None:
    rule = one.rule
    if rule.relative and other is None:
        raise UserError(f"{rule.text}: there is no baseline to compare with.",
                        hint="Give --baseline RESULTS or --baseline-model MODEL.")  # fmt: skip
    if rule.kind == "each_condition":
        assert other is not None
        mine, theirs = conditions(cell), conditions(other)
        if not mine:
            raise BadParameterError(
                f"{rule.target} has no conditions that could lose by themselves."
            )
        one.names = tuple(mine)
        for name, values in mine.items():
            one.add(name, values, theirs[name], owners)
        return
    found = evidence(cell, rule.target)
    known = evidence(other, rule.target) if rule.relative and other is not None else None
    if found.images is None or (known is not None and known.images is None):
        raise BadParameterError(f"{rule.target}: the result has no record of single images.")
    one.higher_is_better = found.higher_is_better
    base = None if known is None else known.images
    if rule.kind != "each_class":
        one.add("", found.images, base, owners)
        return
    labels = cell.image_labels
    assert labels is not None
    assert base is not None
    for place, name in enumerate(cell.label_names):
        chosen = labels == place
        own = None if owners is None else owners[chosen]
        one.add(name, found.images[chosen], base[chosen], own)
