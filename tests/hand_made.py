"""Results written by hand, for what reads them."""

from __future__ import annotations

import numpy as np

from stockpot.results.schema import (
    CellKey,
    CellResult,
    Cost,
    DataFacts,
    ModelFacts,
    Provenance,
    Score,
    pack_bits,
)


def clean_cell(model: str, data: str, correct: np.ndarray, split: str = "test") -> CellResult:
    """A clean accuracy, with what was right and what was not."""
    n = len(correct)
    return CellResult(
        key=CellKey(model=model, measure="clean", data=data),
        scores=[Score(metric="accuracy", value=float(correct.mean()), n=n)],
        data=DataFacts(name=data, split=split, n=n, classes=2, fingerprint=data),
        model=ModelFacts(name=model, source=model, fingerprint=model),
        provenance=Provenance(stockpot="0"),
        cost=Cost(wall_seconds=1.0, device="cpu"),
        outcomes={"correct": pack_bits(correct)},
    )
