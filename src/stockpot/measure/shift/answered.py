"""Which images of a dataset a model answers rightly, in one or both readings of the class space."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from stockpot.datasets.dataset import Dataset
from stockpot.measure.measurement import Context, forward_batches
from stockpot.measure.right_answers import RightAnswers
from stockpot.models.class_space import ClassSpace, match_classes
from stockpot.models.classifier import Classifier

Flags = NDArray[np.bool_]


def right_flags(
    model: Classifier,
    data: Dataset,
    context: Context,
    what: str,
    spaces: Sequence[ClassSpace] = ("all",),
) -> dict[ClassSpace, Flags]:
    """One pass over the images; for each space, whether the best output is right."""
    mappings = {space: match_classes(model.classes, data.classes, space) for space in spaces}
    answers = {space: RightAnswers(data, mapping) for space, mapping in mappings.items()}
    found: dict[ClassSpace, list[torch.Tensor]] = {space: [] for space in spaces}
    for logits, batch in forward_batches(model, data, context, what):
        for space, mapping in mappings.items():
            best = mapping.logits(logits).argmax(dim=1, keepdim=True)
            found[space].append(answers[space].hits(best, batch)[:, 0])
    return {space: torch.cat(parts).cpu().numpy() for space, parts in found.items()}
