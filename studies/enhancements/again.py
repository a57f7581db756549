"""The claims over several trainings: what each picture adds to mCE, kept, and judged.

    python studies/enhancements/again.py runs/enhancements-1 runs/enhancements-2 ...

Writes again.npz beside this file; `tables.py` fills README.md from it.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from claims import BASELINE, CLAIMS, NEXT_TO, contributions
from numpy.typing import NDArray

from stockpot.files import write_atomic
from stockpot.results.contrast import Contrast, Verdict
from stockpot.results.few_seeds import Difference, over_seeds
from stockpot.results.store import load_results
from stockpot.results.tables import markdown

sys.path.append(str(Path(__file__).parents[1]))
from trainings import several

HERE = Path(__file__).parent
KEPT = HERE / "again.npz"
TRAINED = {
    **{claim: CLAIMS[claim] for claim in CLAIMS if claim[0] in "1456"},
    "7 tuning on clean pictures alone makes it worse": (("control",), 1),
}
"""Claims that rest on a training: what is compared, and on which side of zero it is said to lie."""
Floats = NDArray[np.float32]
Training = dict[str, Floats]
"""What each picture adds to mCE, by model."""


def read(run: str | Path) -> Training:
    """Of a run that `study.py --trainings` left."""
    results = load_results(run)
    cells = {cell.key.model: cell for cell in results if cell.key.measure == "corruption"}
    return {
        name: contributions(cell, cells[BASELINE])[0].astype(np.float32)
        for name, cell in cells.items()
    }


def kept() -> list[Training]:
    """All trainings, in the order of their seeds."""
    if not KEPT.exists():
        return []
    with np.load(KEPT) as found:
        names = [str(name) for name in found["models"]]
        return [dict(zip(names, rows, strict=True)) for rows in found["added"]]


def keep(trainings: Sequence[Training]) -> None:
    """Write all trainings; models that one of them lacks are left out."""
    names = [name for name in trainings[0] if all(name in one for one in trainings)]
    added = np.array([[one[name] for name in names] for one in trainings], np.float32)
    stream = io.BytesIO()
    np.savez_compressed(stream, models=np.array(names), added=added)
    write_atomic(KEPT, stream.getvalue())


def difference(trainings: Sequence[Training], name: str, side: int, of: int) -> Difference:
    """What a model adds to mCE, more (1) or less (-1) than its counterpart."""
    ends = [({"test": one[name]}, {"test": one[NEXT_TO[name]]}) for one in trainings]
    return over_seeds(ends if side > 0 else [(b, a) for a, b in ends], of)


def judged(claim: str, trainings: Sequence[Training]) -> tuple[str, str, str, int, str]:
    """A row: the claim, differences with intervals, those of each training, how many, verdict."""
    names, side = TRAINED[claim]
    if not trainings or any(name not in trainings[0] for name in names):
        return claim, "-", "-", 0, "not run"
    found = {name: difference(trainings, name, side, len(names)) for name in names}
    said = [one.said(together=len(names) > 1) for one in found.values()]
    verdict: Verdict = "not told apart"
    if all(one == "held" for one in said):
        verdict = "held"
    elif "did not hold" in said:
        verdict = "did not hold"
    return (
        claim,
        "; ".join(f"{name} {_turned(one.alone, side)}" for name, one in found.items()),
        "; ".join(", ".join(f"{100 * side * v:+.1f}" for v in one.each) for one in found.values()),
        len(trainings),
        verdict,
    )


def _turned(found: Contrast, side: int) -> Contrast:
    """The model less its counterpart, whichever way the claim has it."""
    return found if side > 0 else Contrast(-found.value, -found.high, -found.low)


def from_data() -> dict[str, str]:
    """The place of README.md that follows from again.npz."""
    columns = ("claim", "difference of mCE", "each training", "trainings", "verdict")
    known = kept()
    rows = [judged(claim, known) for claim in TRAINED]
    return {"trainings": several(len(known), markdown(columns, rows))}


if __name__ == "__main__":
    keep([read(run) for run in sys.argv[1:]])
