"""Accuracy by what is unusual about a picture: the factors of ImageNet-X."""

from __future__ import annotations

import numpy as np

from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadParameterError
from stockpot.measure import measures
from stockpot.measure.measurement import (
    Context,
    Flags,
    Measurement,
    flags_in_steps,
    proportion,
    with_interval,
)
from stockpot.measure.together.steps import Steps, in_steps
from stockpot.models.classifier import Classifier
from stockpot.results.resamples import Groups
from stockpot.results.schema import Score
from stockpot.results.several_sets import newcombe
from stockpot.results.statistics import Interval, share_interval
from stockpot.score.class_space import ClassSpace
from stockpot.score.scorer import scorer_for


@measures.register("factors", paper="arXiv:2211.01866", passes=True)
@in_steps
def factors(
    model: Classifier,
    data: Dataset,
    context: Context,
    *,
    by: str = "factors",
    class_space: ClassSpace = "all",
) -> Steps[Measurement]:
    """Accuracy on the pictures that have a factor, its gap, and the ratio of errors.

    Args:
        by: the column that names each picture's factors, with + between several.
        class_space: as for `clean`.
    """
    if by not in data.columns:
        raise BadParameterError(
            f"by: {data.name} has no column {by!r}. Columns: {', '.join(data.columns) or 'none'}.",
            hint="Use data that says what is unusual about its pictures, such as imagenet_x.",
        )
    named = [set(text.split("+")) - {""} for text in data.columns[by]]
    names = dict.fromkeys(name for text in data.columns[by] for name in text.split("+") if name)
    if not names:
        raise BadParameterError(f"by: no picture of {data.name} has a factor in {by!r}.")
    found = yield from flags_in_steps(model, data, context, "factors", (class_space,), "correct")
    right = found[class_space]
    members = {name: np.array([name in each for each in named]) for name in names}
    scorer = scorer_for(model.classes, data, class_space)
    return Measurement(
        scores=factor_scores(right, members, data.groups),
        convention=f"factors:{by}:{class_space}",
        images=len(data),
        outcomes={"correct": right},
        notes=(
            "error ratios have intervals with the error over all pictures held fixed",
            *scorer.notes,
        ),
        class_space=scorer.description,
    )


def factor_scores(right: Flags, members: dict[str, Flags], together: Groups | None) -> list[Score]:
    """`error_ratio` is the error with a factor over the error on all pictures, as published."""
    labels = None if together is None else np.asarray(together)

    def those(chosen: Flags) -> Groups | None:
        return None if labels is None else labels[chosen]

    scores = [proportion("accuracy", right, groups=together)]
    shares = {name: float(right[chosen].mean()) for name, chosen in members.items()}
    worst = min(shares, key=lambda name: (shares[name], name))
    own = those(members[worst])
    scores.append(
        proportion("worst_factor_accuracy", right[members[worst]], {"factor": worst}, groups=own)
    )
    error = 1 - float(right.mean())
    for name, chosen in members.items():
        condition, inside = {"factor": name}, right[chosen]
        scores.append(proportion("factor_accuracy", inside, condition, groups=those(chosen)))
        if not chosen.all():
            outside = right[~chosen]
            interval = newcombe(outside, inside, (those(~chosen), those(chosen)))
            gap = float(outside.mean() - inside.mean())
            scores.append(
                with_interval(
                    "factor_gap", gap, inside.size, interval, better=False, condition=condition
                )
            )
        if error:
            wrong = share_interval(~inside, those(chosen))
            interval = Interval(wrong.low / error, wrong.high / error, wrong.method)
            ratio = (1 - shares[name]) / error
            scores.append(
                with_interval(
                    "error_ratio", ratio, inside.size, interval, better=False, condition=condition
                )
            )
    return scores
