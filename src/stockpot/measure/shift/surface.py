"""Surface variation: does a model know a thing in a style, or of a kind, that it has not seen?"""

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
from stockpot.results.several_sets import mean_of_sets, newcombe
from stockpot.score.class_space import ClassSpace
from stockpot.score.scorer import scorer_for


@measures.register("surface", paper="arXiv:1807.01697", passes=True)
@in_steps
def surface(
    model: Classifier,
    data: Dataset,
    context: Context,
    *,
    by: str = "family",
    unseen: str | tuple[str, ...] = (),
    class_space: ClassSpace = "all",
) -> Steps[Measurement]:
    """Accuracy by style, family, concept or any other column, and the gap to unseen ones.

    A column's values are compared as a whole, so that no name that contains another is held out
    by accident.

    Args:
        by: the column of the data that says which group an image belongs to, such as `family`,
            `style` or `concept` of the icons.
        unseen: the groups that were held out of training, with commas between; gives the
            accuracy on seen and unseen ones and the gap between them.
        class_space: as for `clean`.
    """
    if by not in data.columns:
        known = ", ".join(data.columns) or "none"
        raise BadParameterError(
            f"by: {data.name} has no column {by!r}. Columns: {known}.",
            hint="Use data that says more of its images, such as icons.",
        )
    groups = np.array(data.columns[by])
    new = tuple(part.strip() for part in unseen.split(",")) if isinstance(unseen, str) else unseen
    unknown = sorted(set(new) - set(groups.tolist()))
    if unknown:
        raise BadParameterError(
            f"unseen: no image has {by} {', '.join(unknown)}.",
            hint=f"There are {', '.join(sorted(set(groups.tolist()))[:12])}.",
        )
    found = yield from flags_in_steps(model, data, context, "surface", (class_space,), "correct")
    right = found[class_space]
    scorer = scorer_for(model.classes, data, class_space)
    return Measurement(
        scores=[
            proportion("accuracy", right, groups=data.groups),
            *_scores(right, groups, by, new, data.groups),
        ],
        convention=f"surface:{by}:{class_space}; groups count equally in the mean",
        images=len(data),
        outcomes={"correct": right},
        notes=scorer.notes,
        class_space=scorer.description,
    )


def _scores(
    right: Flags,
    groups: Flags,
    by: str,
    unseen: tuple[str, ...],
    together: Groups | None,
) -> list[Score]:
    """`together` says which images are not independent, as copies of one original are."""
    labels = None if together is None else np.asarray(together)

    def those(members: Flags) -> Groups | None:
        return None if labels is None else labels[members]

    names = [str(name) for name in dict.fromkeys(groups.tolist())]
    parts = {name: right[groups == name] for name in names}
    own = {name: those(groups == name) for name in names}
    shares = {name: float(flags.mean()) for name, flags in parts.items()}
    worst = min(shares, key=lambda name: (shares[name], name))
    mean, interval = mean_of_sets(list(parts.values()), list(own.values()))
    scores = [
        with_interval(
            "mean_group_accuracy", mean, right.size, interval, condition={"groups": len(parts)}
        ),
        proportion("worst_group_accuracy", parts[worst], {by: worst}, groups=own[worst]),
    ]
    scores += [
        proportion("group_accuracy", flags, {"by": by, "group": name}, groups=own[name])
        for name, flags in parts.items()
    ]
    held_out = np.isin(groups, unseen)
    if unseen and not held_out.all():
        seen, new = right[~held_out], right[held_out]
        known = those(~held_out), those(held_out)
        gap = float(seen.mean() - new.mean())
        scores += [
            proportion("seen_accuracy", seen, groups=known[0]),
            proportion("unseen_accuracy", new, {by: ", ".join(unseen)}, groups=known[1]),
            with_interval("gap", gap, new.size, newcombe(seen, new, known), better=False),
        ]
    return scores
