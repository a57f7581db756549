"""The choice of a search as result files, which an index is told of like those of `measure`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stockpot.errors import BadParameterError
from stockpot.measure.measurement import Context
from stockpot.measure.run import measure
from stockpot.results.tuning import TunedTrial
from stockpot.tune.merges import Merges
from stockpot.tune.objectives import Objective


def check_index(exam: Sequence[Any], objectives: Sequence[Objective]) -> None:
    """Whether a search will have final results to tell: scores of measures, on test images."""
    if not exam:
        raise BadParameterError(
            "index: the final results are those on test images, and none are looked at.",
            hint="Leave --no-test (test_split=None) out, or the index.",
        )
    if not any(one.measure for one in objectives):
        names = ", ".join(one.name for one in objectives)
        raise BadParameterError(f"index: {names} is no score of a measure; there is none to tell.")


def tell_choice(
    index: str,
    folder: Path,
    best: TunedTrial,
    merges: Merges,
    objectives: Sequence[Objective],
    unseen: Sequence[bool],
    context: Context,
) -> None:
    """Measure the choice on test images, into `folder/results` and an index; saved cells stay.

    Args:
        index: the index.
        folder: that of the search; with the number of the trial its name is the model's.
        best: the choice.
        merges: over the test images.
        objectives: of the search; the measures behind them are what is measured.
        unseen: which of the datasets no member was made for.
        context: seed, device and batch size.
    """
    with merges.merged(best.method, best.params) as models:
        for model, data, mark in zip(models, merges.data, unseen, strict=True):
            asked: dict[str, Mapping[str, Any]] = {
                one.measure: one.params for one in objectives if one.measure and one.unseen == mark
            }
            if asked:
                measure(
                    {f"{folder.absolute().name}-{best.number}": model}, asked, data=data,
                    out=folder, index=index, seed=context.seed, device=str(context.device),
                    batch_size=context.batch_size,
                )  # fmt: skip
