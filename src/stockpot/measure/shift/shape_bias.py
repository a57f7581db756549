"""Shape or texture: which of two cues decides when a picture has both, of different things."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadDataError
from stockpot.measure import measures
from stockpot.measure.measurement import (
    Context,
    Flags,
    Measurement,
    forward_batches,
    proportion,
    span,
)
from stockpot.measure.samples.said import no_note
from stockpot.measure.together.steps import Steps, in_steps
from stockpot.models.classifier import Classifier
from stockpot.results.schema import Score
from stockpot.score.predictions import predictions
from stockpot.score.scorer import SILENT, scorer_for

SOURCES = ("shape_source", "texture_source")
"""Columns that name the two pictures of which one was made."""


@measures.register("shape_bias", paper="arXiv:1811.12231", passes=True, splits=True)
@in_steps
def shape_bias(model: Classifier, data: Dataset, context: Context) -> Steps[Measurement]:
    """How often a model decides by shape where shape and texture disagree.

    A model's probabilities are averaged over the classes of each category, as the experiments'
    authors do. Pictures whose two cues agree count for accuracy and not for the bias. Where the
    data names the pictures that gave shape and texture, as cue_conflict does, intervals are for
    other shapes and other textures.
    """
    found = yield from decisions(model, data, context, "correct")
    return Measurement(
        scores=shape_scores(data, found),
        convention="shape-bias:mean-probability; agreeing cues left out of the bias",
        images=len(data),
        outcomes={"correct": found.right},
        class_space=scorer_for(model.classes, data, "subset").description,
    )


class Decisions(NamedTuple):
    """The category that was decided for (-1 for none), and whether it is right, by picture."""

    chosen: NDArray[np.int64]
    right: Flags


def decisions(
    model: Classifier, data: Dataset, context: Context, record: str = ""
) -> Steps[Decisions]:
    """The category that a model decides for, among those of the data."""
    scorer = context.scorer(model, data, "subset")
    chosen, right = [], []
    note = context.note(record, data, scorer) if record else no_note
    for outputs, batch in forward_batches(model, data, context, "shape or texture"):
        logits = scorer.logits(outputs)
        chosen.append(predictions(logits))
        right.append(scorer.right(logits, span(batch.rows))[:, 0])
        note(logits, span(batch.rows))
        yield None
    return Decisions(torch.cat(chosen).cpu().numpy(), torch.cat(right).cpu().numpy())


def shape_scores(
    data: Dataset,
    found: Decisions,
    condition: dict[str, str | int | float] | None = None,
) -> list[Score]:
    """Accuracy by shape and, of the decisions for one of two different cues, the shape's share."""
    for column in ("shape", "texture"):
        if column not in data.columns:
            raise BadDataError(
                f"shape_bias: {data.name} has no column {column!r}.",
                hint="Use cue_conflict, whose file names tell both cues.",
            )
    # No answer has the number -1, and so the last of these names.
    names = np.array([*data.classes, SILENT])[found.chosen]
    shape, texture = (np.array(data.columns[column]) for column in ("shape", "texture"))
    conflict = shape != texture
    by_shape: Flags = conflict & (names == shape)
    by_texture: Flags = conflict & (names == texture)
    decided = by_shape | by_texture
    # Two pictures that share a shape or a texture are not independent.
    sources = [np.array(data.columns[key]) for key in SOURCES if key in data.columns]
    if not sources and data.groups is not None:
        sources = [np.array(data.groups)]

    def share(metric: str, flags: Flags, among: Flags) -> Score:
        shapes, textures = (*(each[among] for each in sources), None, None)[:2]
        return proportion(metric, flags[among], condition, groups=shapes, crossed=textures)

    scores = [share("accuracy", found.right, np.ones(len(data), dtype=np.bool_))]
    if conflict.any():
        scores.append(share("texture_decisions", by_texture, conflict))
        scores[-1] = scores[-1].model_copy(update={"higher_is_better": None})
    if decided.any():
        bias = share("shape_bias", by_shape, decided)
        scores.append(bias.model_copy(update={"higher_is_better": None}))
    return scores
