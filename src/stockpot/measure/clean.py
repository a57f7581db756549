"""Accuracy on the images as they are, and how well the confidence fits it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadParameterError
from stockpot.measure import measures
from stockpot.measure.measurement import (
    Context,
    Measurement,
    forward_batches,
    proportion,
    span,
    with_interval,
)
from stockpot.measure.together.steps import NUMBERS, Steps, in_steps
from stockpot.models.classifier import Classifier
from stockpot.results.calibration import calibration_error, calibration_interval
from stockpot.results.resamples import draw_ahead
from stockpot.results.statistics import bootstrap_mean
from stockpot.score.class_space import ClassSpace
from stockpot.types import Count

_TOGETHER = 1 << 22
"""Outputs that are scored at once: a thousand take Python as long as a million, and whoever feeds a
GPU has little time for each batch."""


@measures.register("clean", passes=True, splits=True, joins=True)
@in_steps
def clean(
    model: Classifier,
    data: Dataset,
    context: Context,
    *,
    top: Count = 5,
    bins: Count = 15,
    class_space: ClassSpace = "all",
    per_class: bool = True,
) -> Steps[Measurement]:
    """Top-1 and top-k accuracy, per-class accuracy, NLL and calibration error.

    Args:
        top: the k of top-k accuracy; left out where there are no more classes than that.
        bins: equal-width confidence bins of the expected calibration error.
        class_space: where the data covers only some of the model's classes, whether the
            prediction is the best of `all` outputs or of the covered `subset`.
        per_class: also give the accuracy of every class.
    """
    if top < 1 or bins < 1:
        raise BadParameterError(f"clean: expected top >= 1 and bins >= 1, got {top} and {bins}.")
    scorer = context.scorer(model, data, class_space)
    right, right_top, losses, confidences = [], [], [], []
    note = context.note("correct", data, scorer)

    def scored(logits: Tensor, rows: slice) -> tuple[Tensor, ...]:
        logits = scorer.logits(logits)
        hits = scorer.right(logits, rows, top)
        confidence = logits.softmax(dim=1).amax(dim=1)
        return hits[:, 0], hits.any(dim=1), scorer.losses(logits, rows), confidence, logits

    waiting: list[tuple[Tensor, slice]] = []

    def score() -> None:
        outputs = torch.cat([part for part, _ in waiting])
        rows = slice(waiting[0][1].start, waiting[-1][1].stop)
        waiting.clear()
        first, among, loss, sure, logits = scored(outputs, rows)
        right.append(first)
        right_top.append(among)
        losses.append(loss)
        confidences.append(sure)
        note(logits, rows)

    for outputs, batch in forward_batches(model, data, context, "clean", scored):
        if context.device.type != "cpu" and not (waiting or right):
            # The processor has little to do from now on; until now a GPU has waited for it.
            draw_ahead(len(data), context.seed, data.groups)
        waiting.append((outputs, span(batch.rows)))
        if sum(part.numel() for part, _ in waiting) >= _TOGETHER:
            score()
        yield None
    if waiting:
        score()
    yield NUMBERS
    # Whoever asks other models meanwhile does not wait until the device has come so far.
    correct = torch.cat(right).cpu().numpy()
    nll = torch.cat(losses).cpu().double().numpy()
    # What is no answer has no likelihood; its confidence counts as complete, and it is wrong.
    answered = np.isfinite(nll)
    nll = nll[answered]
    confidence = torch.cat(confidences).cpu().double().nan_to_num(1.0).numpy()
    hit = torch.cat(right_top).cpu().numpy()
    seed = context.seed
    groups = None if data.groups is None else np.asarray(data.groups)
    scores = [proportion("accuracy", correct, groups=groups)]
    if top > 1 and len(model.classes) > top:
        scores.append(proportion(f"top{top}_accuracy", hit, groups=groups))
    if len(nll):
        own = None if groups is None else groups[answered]
        interval = bootstrap_mean(nll, seed=seed, groups=own)
        scores.append(
            with_interval("nll", float(nll.mean()), len(nll), interval, better=False, unit="nats")
        )
    scores.append(
        with_interval(
            "ece",
            calibration_error(confidence, correct, bins),
            len(data),
            calibration_interval(confidence, correct, bins, seed=seed, groups=groups),
            better=False,
        )
    )
    if per_class:
        labels = data.labels.numpy()
        for index, name in enumerate(data.classes):
            members = labels == index
            if members.any():
                own = None if groups is None else groups[members]
                condition = {"class": name}
                scores.append(proportion("class_accuracy", correct[members], condition, groups=own))
    several = ":any-of-the-accepted" if scorer.several else ""
    return Measurement(
        scores=scores,
        convention=f"top1:{class_space}{several}; ece:{bins}-equal-width",
        images=len(data),
        outcomes={"correct": correct},
        notes=scorer.notes,
        class_space=scorer.description,
    )
