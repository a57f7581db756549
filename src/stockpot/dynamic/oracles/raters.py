"""How far several people agree beyond chance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence


def krippendorff_alpha(units: Sequence[Sequence[Hashable]]) -> float:
    """Krippendorff's alpha for names without an order: 1 is full agreement, 0 what chance gives.

    Args:
        units: for each thing that was judged, the answers it got; there may be few or none, and a
            thing with a single answer says nothing of agreement.
    """
    paired = [Counter(answers) for answers in units if len(answers) > 1]
    totals: Counter[Hashable] = Counter()
    for counts in paired:
        totals.update(counts)
    n = totals.total()
    if not n:
        return float("nan")
    differ = 0.0
    for counts in paired:
        size = counts.total()
        differ += sum(count * (size - count) for count in counts.values()) / (size - 1)
    expected = sum(count * (n - count) for count in totals.values()) / (n - 1)
    # One answer for everything: nothing could have shown a difference.
    return 1.0 - differ / expected if expected else 1.0
