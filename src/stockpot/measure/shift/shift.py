"""Accuracy on the data and on sets from elsewhere: the gaps, and what of them is expected.

Models that are better inside are better outside, roughly along a line in logit space. How far a
model lies above that line is its effective robustness (Taori et al., arXiv:2007.00644); the line
is fitted to models of the user's choice and given here by its two numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadParameterError
from stockpot.measure import measures
from stockpot.measure.chosen_data import load_chosen
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
from stockpot.results.several_sets import mean_of_sets, newcombe
from stockpot.results.statistics import Interval
from stockpot.score.class_space import ClassSpace
from stockpot.score.scorer import scorer_for
from stockpot.types import Reference


@measures.register("shift", paper="arXiv:2007.00644", passes=True)
@in_steps
def shift(
    model: Classifier,
    data: Dataset,
    context: Context,
    *,
    outside: Annotated[dict[str, Any], Reference("datasets")] | None = None,
    class_space: ClassSpace = "all",
    line: tuple[float, float] | None = None,
) -> Steps[Measurement]:
    """Accuracy on the data and on data from elsewhere: each gap, and the mean outside.

    Args:
        outside: the sets to compare with, by the name they shall have: each a dataset's name, or
            its options with `dataset` for the name, as in a recipe, such as `{dataset:
            object_on_context, shift: reversed}`.
        class_space: as for `clean`.
        line: slope and intercept, in logits, of the accuracy outside that models with this
            accuracy inside usually have; adds the effective robustness.
    """
    if not outside:
        raise BadParameterError(
            "shift: expected at least one dataset outside.",
            hint="Such as outside={sketches: {dataset: domains, domain: drawing}}.",
        )
    spaces = (class_space,)
    inside = yield from flags_in_steps(model, data, context, "inside", spaces, "correct")
    own = inside[class_space]
    found = {}
    groups: SetGroups = {INSIDE: data.groups}
    notes = [f"inside: {data} ({data.fingerprint[:16]})"]
    for name, chosen in outside.items():
        other = load_chosen(chosen, f"outside: {name}")
        record = f"outside:{name}"
        flags = yield from flags_in_steps(model, other, context, name, spaces, record)
        found[name], groups[name] = flags[class_space], other.groups
        notes.append(f"{name}: {other} ({other.fingerprint[:16]})")
    scorer = scorer_for(model.classes, data, class_space)
    return Measurement(
        scores=outside_scores(own, found, Line(*line) if line else None, groups),
        convention=f"shift:{class_space}; mean of {len(found)} sets, each counting equally",
        images=len(own) + sum(flags.size for flags in found.values()),
        outcomes={"correct": own, **{f"outside:{name}": flags for name, flags in found.items()}},
        notes=(*notes, *scorer.notes),
        class_space=scorer.description,
    )


class Line(NamedTuple):
    """Accuracy outside as a function of accuracy inside, both in logits."""

    slope: float
    intercept: float

    def expected(self, inside: float) -> float:
        """The accuracy outside that the line gives for an accuracy inside."""
        bounded = min(max(inside, 1e-4), 1 - 1e-4)
        from scipy.special import expit, logit

        return float(expit(self.intercept + self.slope * logit(bounded)))


def fit_line(inside: Sequence[float], outside: Sequence[float]) -> Line:
    """The least-squares line through models in logit space."""
    if len(inside) != len(outside) or len(set(inside)) < 2:
        raise BadParameterError(
            "a line needs at least two models of different accuracy inside, "
            f"got {len(inside)} inside and {len(outside)} outside."
        )
    from scipy.special import logit

    x, y = (logit(np.clip(values, 1e-4, 1 - 1e-4)) for values in (inside, outside))
    slope, intercept = np.polyfit(x, y, 1)
    return Line(float(slope), float(intercept))


INSIDE = ""
"""The name of the data itself among sets."""
SetGroups = dict[str, Groups | None]
"""For each set by name which of its images belong together."""


def outside_scores(
    inside: Flags,
    outside: Mapping[str, Flags],
    line: Line | None = None,
    groups: Mapping[str, Groups | None] | None = None,
) -> list[Score]:
    """Accuracy inside, in each set outside, their mean, and the gaps."""
    known = groups or {}
    own = known.get(INSIDE)
    scores = [proportion("accuracy", inside, groups=own)]
    within = float(inside.mean())
    for name, flags in outside.items():
        condition = {"set": name}
        scores.append(proportion("outside_accuracy", flags, condition, groups=known.get(name)))
        scores.append(
            with_interval(
                "gap",
                within - float(flags.mean()),
                min(inside.size, flags.size),
                newcombe(inside, flags, (own, known.get(name))),
                better=False,
                condition=condition,
            )
        )
    mean, interval = mean_of_sets(list(outside.values()), [known.get(name) for name in outside])
    total = sum(flags.size for flags in outside.values())
    sets = {"sets": len(outside)}
    scores.append(with_interval("mean_outside_accuracy", mean, total, interval, condition=sets))
    if line is not None:
        expected = line.expected(within)
        shifted = Interval(interval.low - expected, interval.high - expected, interval.method)
        scores.append(
            with_interval(
                "effective_robustness",
                mean - expected,
                total,
                shifted,
                condition={"slope": line.slope, "intercept": line.intercept},
            )
        )
    return scores
