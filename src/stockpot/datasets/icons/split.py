"""The default split: by concept within a class, decided by the class table and a seed alone.

Since it does not depend on which styles were rendered, a set built with further styles keeps every
concept in the split that it has in the embedded one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from stockpot.datasets.icons.concepts import Group
from stockpot.types import Split

SEED = 0
TEST_SHARE = 0.2
VAL_SHARE = 0.1


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
