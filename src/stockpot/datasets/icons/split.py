"""The default split: by concept within a class, decided by the class table and a seed alone.

Since it does not depend on which styles were rendered, a set built with further styles keeps every
concept in the split that it has in the embedded one. Afterwards what looks alike is brought to one
side (`look_alikes.yaml`), by moving pictures into training, never out of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache

from stockpot.datasets.icons.concepts import Group, class_table, read_table
from stockpot.types import Split

SEED = 0
TEST_SHARE = 0.2
VAL_SHARE = 0.1
ASIDE = "aside"
"""The split of drawings that are in none: each looks like one on the other side."""


def split_groups(label: str, groups: Sequence[Group], seed: int = SEED) -> dict[str, Split]:
    """Codepoint -> split; a group stays whole, and every class has all three splits."""

    def draw(group: Group) -> str:
        return hashlib.sha256(f"{seed}:{label}:{group[0].codepoint}".encode()).hexdigest()

    waiting = sorted(groups, key=draw)
    total = sum(len(group) for group in groups)
    splits: dict[str, Split] = {}
    wanted: tuple[tuple[Split, float], ...] = (("test", TEST_SHARE), ("val", VAL_SHARE))
    for split, share in wanted:
        taken = 0
        for group in [*waiting]:
            # A group so large that it would fill the split on its own stays in train.
            if taken < round(share * total) and taken + len(group) <= max(
                len(min(waiting, key=len)), 1.3 * share * total
            ):
                taken += len(group)
                waiting.remove(group)
                splits.update((concept.codepoint, split) for concept in group)
    splits.update((concept.codepoint, "train") for group in waiting for concept in group)
    return splits


@cache
def look_alikes() -> dict[str, str]:
    """Codepoint -> the first of those that it looks like, or itself."""
    found: dict[str, str] = {}
    for groups in class_table().values():
        for group in groups:
            found |= {concept.codepoint: group[0].codepoint for concept in group}
    for listed in read_table("look_alikes")["groups"]:
        codes = [_code(text) for text in listed]
        first = found[codes[0]]
        joined = {found[code] for code in codes}
        found |= {code: first for code, group in found.items() if group in joined}
    return found


@cache
def splits() -> dict[str, Split]:
    """Codepoint -> split, with look-alikes on one side."""
    drawn: dict[str, Split] = {}
    for label, groups in class_table().items():
        drawn |= split_groups(label, groups)
    sides: dict[str, set[Split]] = {}
    for code, group in look_alikes().items():
        sides.setdefault(group, set()).add(drawn[code])
    torn = {group for group, found in sides.items() if len(found) > 1}
    moved = {_code(text) for text in read_table("look_alikes")["val"]}
    return {
        code: "train" if look_alikes()[code] in torn else "val" if code in moved else split
        for code, split in drawn.items()
    }


@cache
def aside() -> frozenset[tuple[str, str]]:
    """Style and codepoint of the drawings that are in no split."""
    listed = read_table("look_alikes")["aside"]
    return frozenset((style, _code(text)) for style, texts in listed.items() for text in texts)


def split_of(style: str, codepoint: str) -> str:
    """The split that a drawing is in."""
    return ASIDE if (style, codepoint) in aside() else splits()[codepoint]


def _code(text: str) -> str:
    return text.split(" ", 1)[0]
