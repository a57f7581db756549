"""What enhancements are compared with, what is claimed of them, and what a picture adds to mCE."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from study import ANEW, NINE

from stockpot.results.schema import CellResult

Floats = NDArray[np.float64]
BASELINE = "start"
NEXT_TO = {
    **dict.fromkeys((*NINE, "clahe-trained"), "control"),
    **dict.fromkeys(("control", "nlm", "clahe", "ten-crop"), BASELINE),
    **dict.fromkeys(("size-8", "size-16"), "size-4"),
    "multiscale": "size-8",
}
"""What each is compared with."""
ORDER = (BASELINE, "nlm", "clahe", "ten-crop", "control", "clahe-trained", *NINE, *ANEW)
CLAIMS: dict[str, tuple[Sequence[str], int]] = {
    "1 stability training makes it worse": (NINE, 1),
    "2 non-local means makes it worse": (("nlm",), 1),
    "3 ten crops change little": (("ten-crop",), 0),
    "4 CLAHE with tuning makes it better": (("clahe-trained",), -1),
    "5 larger networks are better": (("size-8", "size-16"), -1),
    "6 a multi-scale network is better than a plain one": (("multiscale",), -1),
}
"""Claim -> what is compared, and on which side of zero the difference is said to lie."""


def contributions(cell: CellResult, baseline: CellResult) -> tuple[Floats, Floats]:
    """What each picture adds to mCE and to relative mCE; their means are the scores."""
    clean, own = _wrong(cell)
    clean_base, base = _wrong(baseline)
    plain = [own[name].sum(axis=0) / base[name].mean(axis=1).sum() for name in own]
    relative = []
    for name in own:
        lost = (base[name].mean(axis=1) - clean_base.mean()).sum()
        if lost / len(base[name]) >= 0.01:  # as the measure leaves out what loses less than a point
            relative.append((own[name] - clean).sum(axis=0) / lost)
    return np.mean(plain, axis=0), np.mean(relative, axis=0)


def _wrong(cell: CellResult) -> tuple[Floats, dict[str, Floats]]:
    """Errors on clean pictures, and by corruption a row for each severity."""
    clean, found = np.empty(0), dict[str, list[Floats]]()
    for key in cell.outcomes:
        wrong = 1.0 - cell.outcome(key).astype(np.float64)
        name, _, severity = key.partition(":")
        if severity:
            found.setdefault(name, []).append(wrong)
        else:
            clean = wrong
    return clean, {name: np.stack(rows) for name, rows in found.items()}
