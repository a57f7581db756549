"""A measure within the memory that there is: half the batch whenever it runs out.

Forward passes halve by themselves and lose nothing (`models/forward/passes.py`). What else a
measure does (corrupting, attacking) begins anew with half the batch, so that the cell is not lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from stockpot.datasets.dataset import Dataset
from stockpot.measure import measures
from stockpot.measure.measurement import Context, Measurement
from stockpot.measure.parts import Recalled
from stockpot.models.classifier import Classifier
from stockpot.models.forward.memory import Halving
from stockpot.models.forward.passes import Passes, kept_passes
from stockpot.score.predictions import Watch, watching


@dataclass(frozen=True)
class Ran:
    """A measure that has ended: what it found, what the model answered, and how it was run."""

    found: Measurement
    watch: Watch
    context: Context
    halved: list[str] = field(default_factory=list)

    @property
    def notes(self) -> list[str]:
        """What there is to say of the passes."""
        return [*self.halved, *_said(self.context.made)]


def in_memory(
    measure: str, model: Classifier, data: Dataset, context: Context, params: Mapping[str, Any]
) -> Ran:
    """A measure by itself."""
    halving = Halving(context.batch_size)
    while True:
        context.made.clear()
        if context.said is not None:
            context.said.clear()
        try:
            with watching(model) as watch:
                now = replace(context, batch_size=halving.size)
                found = measures.get(measure)(model, data, now, **params)
        except torch.OutOfMemoryError as problem:
            kept_passes.cache_clear()
            halving.halve(problem)
            continue
        return Ran(found, watch, context, halving.notes)


def _said(made: Sequence[Passes | Recalled]) -> list[str]:
    """What a reader must know of forward passes: that they were not made in full precision."""
    unlike = {str(run.facts) for run in made if run.facts.precision != "fp32" or run.facts.compiled}
    return [
        *(f"forward passes in {words}" for words in sorted(unlike)),
        *(note for run in made for note in run.notes),
    ]
