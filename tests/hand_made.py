"""Results written by hand, for what reads them."""

from __future__ import annotations

import numpy as np

from stockpot.results.packed import pack_bits
from stockpot.results.schema import (
    CellKey,
    CellResult,
    Cost,
    DataFacts,
    ModelFacts,
    Provenance,
    Score,
)
from stockpot.types import Variant


def clean_cell(
    model: str, data: str, correct: np.ndarray, split: str = "test", *, seed: int | None = None
) -> CellResult:
    """A clean accuracy, with what was right and what was not; `seed` makes it a run of `model`."""
    n = len(correct)
    return CellResult(
        key=CellKey(
            model=Variant(model, seed).label,
            entry=model,
            training_seed=seed,
            measure="clean",
            data=data,
        ),
        scores=[Score(metric="accuracy", value=float(correct.mean()), n=n)],
        data=DataFacts(name=data, split=split, n=n, classes=2, fingerprint=data),
        model=ModelFacts(name=model, source=model, fingerprint=model),
        provenance=Provenance(stockpot="0"),
        cost=Cost(wall_seconds=1.0, device="cpu"),
        outcomes={"correct": pack_bits(correct)},
    )
