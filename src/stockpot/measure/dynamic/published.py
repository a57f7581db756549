"""The measure `published`: FMR of a model on pictures that were made against another."""

from __future__ import annotations

import numpy as np

from stockpot.datasets.dataset import Dataset
from stockpot.dynamic.published.read import read_published
from stockpot.measure import measures
from stockpot.measure.dynamic.outcomes import ratios_of
from stockpot.measure.measurement import Context, Measurement, flags_in_steps, proportion
from stockpot.measure.together.steps import Steps, in_steps
from stockpot.models.classifier import Classifier
from stockpot.score.class_space import ClassSpace
from stockpot.score.scorer import scorer_for


@measures.register("published", paper="arXiv:2308.10632")
@in_steps
def published(
    model: Classifier, data: Dataset, context: Context, *, class_space: ClassSpace = "all"
) -> Steps[Measurement]:
    """FMR on a published set: accuracy on its pictures over accuracy on their originals.

    The data is the folder that `dynamic` wrote with `export=FOLDER`.

    Args:
        class_space: as for `clean`.
    """
    found = read_published(data)
    space = (class_space,)
    before = yield from flags_in_steps(model, found.originals, context, "originals", space)
    made = yield from flags_in_steps(model, found.made, context, "published", space, "correct")
    correct, after = before[class_space], made[class_space]
    validated = np.zeros(len(correct), dtype=bool)
    withstood = np.zeros(len(correct), dtype=bool)
    validated[found.rows] = True
    withstood[found.rows] = after
    maker = str(found.about["model"])
    condition = {
        "generator": str(found.about["generator"]),
        "oracle": str(found.about["oracle"]),
        "maker": maker,
    }
    own = found.about["model_fingerprint"] == model.origin.fingerprint
    whose = "against this model itself" if own else f"against {maker}, not against this model"
    return Measurement(
        scores=[
            proportion("accuracy", correct, condition),
            proportion("validation_rate", validated, condition),
            proportion("perturbed_accuracy", after, condition),
            *ratios_of(withstood, validated, correct, condition, context.seed),
        ],
        convention=f"{found.about['protocol']}; made {whose}; {found.about['convention']}",
        images=len(correct) + len(after),
        outcomes={"correct": after},
        notes=(f"the pictures were made {whose}",),
        class_space=scorer_for(model.classes, found.made, class_space).description,
    )
