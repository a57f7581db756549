"""Accuracy on the data and on sets from elsewhere, side by side."""

from __future__ import annotations

from typing import Any

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.errors import BadParameterError
from stockpot.measure import measures
from stockpot.measure.measurement import Context, Measurement
from stockpot.measure.shift.answered import right_flags
from stockpot.measure.shift.gaps import Line, outside_scores
from stockpot.models.class_space import ClassSpace, match_classes
from stockpot.models.classifier import Classifier


@measures.register("shift", paper="arXiv:2007.00644")
def shift(
    model: Classifier,
    data: Dataset,
    context: Context,
    *,
    outside: dict[str, Any] | None = None,
    class_space: ClassSpace = "all",
    line: tuple[float, float] | None = None,
) -> Measurement:
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
    own = right_flags(model, data, context, "inside", (class_space,))[class_space]
    found = {}
    notes = [f"inside: {data} ({data.fingerprint[:16]})"]
    for name, chosen in outside.items():
        other = _loaded(name, chosen)
        flags = right_flags(model, other, context, name, (class_space,))
        found[name] = flags[class_space]
        notes.append(f"{name}: {other} ({other.fingerprint[:16]})")
    mapping = match_classes(model.classes, data.classes, class_space)
    return Measurement(
        scores=outside_scores(own, found, Line(*line) if line else None),
        convention=f"shift:{class_space}; mean of {len(found)} sets, each counting equally",
        images=len(own) + sum(flags.size for flags in found.values()),
        outcomes={"correct": own, **{f"outside:{name}": flags for name, flags in found.items()}},
        notes=(*notes, *((mapping.note,) if mapping.note else ())),
        class_space=mapping.description,
    )


def _loaded(name: str, chosen: Any) -> Dataset:
    if isinstance(chosen, Dataset):
        return chosen
    if isinstance(chosen, str):
        return load_dataset(chosen)
    if not isinstance(chosen, dict) or "dataset" not in chosen:
        raise BadParameterError(
            f"outside: expected a dataset's name, or options with `dataset`, for {name!r}, "
            f"got {chosen!r}."
        )
    options = {key: value for key, value in chosen.items() if key != "dataset"}
    return load_dataset(str(chosen["dataset"]), **options)
