"""`stockpot.advise`: look at a pool, and say in plain words what will work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stockpot.advise.advice import TITLES, Advice, Item
from stockpot.advise.facts import Facts
from stockpot.advise.look import look
from stockpot.advise.rules import belonging, mergers
from stockpot.advise.rules.words import Words
from stockpot.checkpoints.member_names import by_name
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.errors import BadParameterError

if TYPE_CHECKING:
    from stockpot.fuse.request import Spec

RULES: tuple[Callable[[Facts, Words], Iterator[Item]], ...] = (
    belonging.other_architectures, belonging.copies, belonging.strangers, belonging.heads,
    belonging.statistics, mergers.alone, mergers.robust_family, mergers.many, mergers.adapters,
    belonging.valleys,
)  # fmt: skip


def advise(
    base: Spec,
    members: Sequence[Spec] | Mapping[str, Spec],
    *,
    data: str | Path | Dataset | None = None,
    limit: int = 64,
    data_options: Mapping[str, Any] | None = None,
) -> Advice:
    """Look at a pool of checkpoints and say what will work, what will not, and why.

    Weights are streamed, so that memory does not grow with the number of members. Each piece of
    advice names the study that supports it, with its number, and the commands to run.

    Args:
        base: the model that the members were fine-tuned from.
        members: as for `fuse`; LoRA adapters too.
        data: labelled images, to look at the straight lines from the base to the members.
        limit: at most so many of them.
        data_options: options of `load_dataset`.

    Returns:
        What to do as `.items`, what was found as `.facts`; as text, what the command prints.
    """
    if limit < 1:
        raise BadParameterError(f"limit: expected at least 1, got {limit}.")
    named = by_name(members, taken=("base",))
    if not named:
        raise BadParameterError("members: expected at least one checkpoint, got none.")
    images = None
    if data is not None:
        options = {"limit": limit, **(data_options or {})}
        images = data.limited(limit) if isinstance(data, Dataset) else load_dataset(data, **options)
    facts = look(base, named, images)
    words, kinds = Words(facts), list(TITLES)
    items = [item for rule in RULES for item in rule(facts, words)]
    # In the order in which one would do it.
    return Advice(facts, tuple(sorted(items, key=lambda item: kinds.index(item.kind))))
