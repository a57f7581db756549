"""Which measures take a model that adapts."""

from __future__ import annotations

from stockpot.defend.adapt.adapting import Adapting
from stockpot.errors import UserError
from stockpot.measure import measures
from stockpot.models.classifier import Classifier


def check_taken(model: Classifier, measure: str) -> None:
    """A model that changes by being asked has no answers of its own, only answers to a stream."""
    if isinstance(model, Adapting) and not measures.get(measure).tags.adapts:
        raise UserError(
            f"{model.origin.source} adapts while it is asked, so {measure} would depend on the "
            "order and size of its batches.",
            hint="Measure it with `stream`, or leave the defence out.",
        )
