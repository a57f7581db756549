"""Shape or texture: which of two cues decides when a picture has both, of different things."""

from __future__ import annotations

import numpy as np
import torch

from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadDataError
from stockpot.measure import measures
from stockpot.measure.measurement import Context, Measurement, forward_batches, proportion
from stockpot.measure.shift.answered import Flags
from stockpot.models.class_space import match_classes
from stockpot.models.classifier import Classifier
from stockpot.results.schema import Score


@measures.register("shape_bias", paper="arXiv:1811.12231")
def shape_bias(model: Classifier, data: Dataset, context: Context) -> Measurement:
    """How often a model decides by shape where shape and texture disagree.

    A model's probabilities are averaged over the classes of each category, as the experiments'
    authors do. Pictures whose two cues agree count for accuracy and not for the bias.
    """
    chosen = decisions(model, data, context)
    mapping = match_classes(model.classes, data.classes, "subset")
    return Measurement(
        scores=shape_scores(data, chosen),
        convention="shape-bias:mean-probability; agreeing cues left out of the bias",
        images=len(data),
        outcomes={"correct": chosen == data.labels.numpy()},
        class_space=mapping.description,
    )


def decisions(
    model: Classifier, data: Dataset, context: Context
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The category that a model decides for, by the mean probability of its classes."""
    mapping = match_classes(model.classes, data.classes, "subset")
    groups = mapping.groups or tuple((int(output),) for output in mapping.outputs)
    weights = torch.zeros(len(model.classes), len(groups))
    for column, group in enumerate(groups):
        weights[list(group), column] = 1 / len(group)
    chosen = [
        (logits.cpu().softmax(dim=1) @ weights).argmax(dim=1)
        for logits, _ in forward_batches(model, data, context, "shape or texture")
    ]
    return torch.cat(chosen).numpy()


def shape_scores(
    data: Dataset,
    chosen: np.ndarray[tuple[int], np.dtype[np.int64]],
    condition: dict[str, str | int | float] | None = None,
) -> list[Score]:
    """Accuracy by shape and, of the decisions for one of two different cues, the shape's share."""
    for column in ("shape", "texture"):
        if column not in data.columns:
            raise BadDataError(
                f"shape_bias: {data.name} has no column {column!r}.",
                hint="Use cue_conflict, whose file names tell both cues.",
            )
    names = np.array(data.classes)[chosen]
    shape, texture = (np.array(data.columns[column]) for column in ("shape", "texture"))
    conflict = shape != texture
    by_shape: Flags = conflict & (names == shape)
    by_texture: Flags = conflict & (names == texture)
    decided = by_shape | by_texture
    scores = [proportion("accuracy", np.asarray(names == shape), condition)]
    if conflict.any():
        scores.append(proportion("texture_decisions", by_texture[conflict], condition))
        scores[-1] = scores[-1].model_copy(update={"higher_is_better": None})
    if decided.any():
        bias = proportion("shape_bias", by_shape[decided], condition)
        scores.append(bias.model_copy(update={"higher_is_better": None}))
    return scores
