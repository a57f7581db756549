"""Accuracy on a stream of corrupted pictures, for models that adapt while they are asked.

Published numbers of test-time adaptation hold for one stream: which corruptions follow one another,
whether the model begins anew between them, how labels are ordered and how large batches are. All of
that is part of the question here. Calibration and attacks are measured beside accuracy, because
methods that lower entropy can pay for the one with the others.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field

from stockpot.attack.threat import Eps, threat
from stockpot.corrupt.constants import Profile
from stockpot.corrupt.ranges import Corruptions, chosen_corruptions
from stockpot.corrupt.sizes import SizeRule, sizing
from stockpot.corrupt.weather.frost import Overlays
from stockpot.datasets.dataset import Dataset
from stockpot.defend.adapt.adapting import Adapting
from stockpot.measure import measures
from stockpot.measure.measurement import Context, Measurement
from stockpot.measure.stream.answers import Answers, Condition
from stockpot.measure.stream.attacks import attacked_scores
from stockpot.measure.stream.order import OrderName, Piece, StreamName, pieces
from stockpot.measure.stream.pictures import Corruption, Pictures
from stockpot.models.classifier import Classifier, evaluating
from stockpot.score.class_space import ClassSpace
from stockpot.score.scorer import scorer_for
from stockpot.types import Count, Natural, Norm, Positive


@measures.register("stream", adapts=True)
def stream(
    model: Classifier,
    data: Dataset,
    context: Context,
    *,
    stream: StreamName = "continual",
    corruptions: Corruptions = "benchmark",
    severity: Annotated[int, Field(ge=0, le=5)] = 5,
    order: OrderName = "shuffled",
    concentration: Positive = 0.1,
    batch: Count = 200,
    bins: Count = 15,
    attacked: Natural = 64,
    norm: Norm = "linf",
    eps: Eps = "1/255",
    profile: Profile | Literal["auto"] = "auto",
    size: SizeRule = "published",
    overlays: Overlays = "procedural",
    class_space: ClassSpace = "all",
) -> Measurement:
    """Accuracy, calibration and robustness on a stream, of a model that may adapt to it.

    A model adapts where a defence such as `tent` stands around it (`defend: tent`); any other model
    answers the same stream as it is, for comparison.

    Args:
        stream: `single` (each corruption alone, the model begins anew before it), `continual` (one
            after another, it never does) or `mixed` (all shuffled together).
        corruptions: as for `corruption`; their order is that of the stream.
        severity: 1 to 5; 0 is a stream of the pictures as they are.
        order: of labels: `shuffled`, `sorted` (class by class) or `dirichlet` (runs of classes).
        concentration: of `dirichlet`; the smaller, the longer the runs.
        batch: pictures that are shown at once; adaptation depends on it.
        bins: equal-width confidence bins of the calibration error.
        attacked: how many of the last pictures of the stream are attacked afterwards; 0 for none.
        norm: of the attack.
        eps: its radius in pixel units.
        profile: as for `corruption`.
        size: as for `corruption`.
        overlays: as for `corruption`.
        class_space: as for `clean`.
    """
    kinds: list[Corruption] = [None]
    if severity:
        kinds = [(name, severity) for name in chosen_corruptions(corruptions)]
    labels = data.labels.numpy().astype(np.int64)
    parts = pieces(stream, order, labels, len(kinds), context.seed, concentration)
    way = sizing(data, model.preprocess, size)
    pictures = Pictures(data, len(kinds), way, context.device, context.seed, profile, overlays)
    answers = Answers(scorer_for(model.classes, data, class_space), kinds)
    answers.notes = [context.note(record, data, answers.scorer) for record in answers.records]
    skipped = _shown(model, pictures, parts, batch, answers, context)
    said: Condition = {"stream": stream, "order": order, "batch": batch}
    runs = f" (concentration {concentration:g})" if order == "dirichlet" else ""
    words = f"{stream}, labels {order}{runs}, batches of {batch}, severity {severity}"
    notes = [f"stream: {words}, seed {context.seed}"]
    if skipped:
        notes.append(f"{skipped} batches taught nothing: loss or gradients were not finite")
    scores = answers.scores(said, data.groups, bins, context.seed)
    if attacked:
        shown = np.concatenate([part.rows for part in parts])[-attacked:]
        under = np.concatenate([part.kinds for part in parts])[-attacked:]
        pixels = pictures.take(shown, [kinds[kind] for kind in under])
        rows = torch.from_numpy(shown)
        aim = threat(norm, eps)
        scores += attacked_scores(model, pixels, answers.scorer, rows, aim, context.seed, said)
        notes.append(
            f"attacks on the last {len(rows)} pictures of the stream: `static` is the model as it "
            "was given, `adapted` the one that the stream has left, held still"
        )
    return Measurement(
        scores=scores,
        convention=f"stream: {words}; top1:{class_space}; ece:{bins}-equal-width",
        images=len(data) * len(kinds),
        outcomes=answers.outcomes(),
        notes=(*notes, *answers.scorer.notes),
        class_space=answers.scorer.description,
    )


def _shown(
    model: Classifier,
    pictures: Pictures,
    parts: list[Piece],
    batch: int,
    answers: Answers,
    context: Context,
) -> int:
    """Show a stream to a model; how many batches an adapting one could not learn from."""
    done, total, skipped = 0, sum(len(part.rows) for part in parts), 0
    with evaluating(model):
        for part in parts:
            if part.fresh and isinstance(model, Adapting):
                model.reset(context.seed)
            before = model.learner.skipped if isinstance(model, Adapting) else 0
            for rows, own in part.batches(batch):
                pixels = pictures.take(rows, [answers.kinds[kind] for kind in own])
                answers.add(rows, own, model(pixels))
                done += len(rows)
                context.progress("stream", done, total)
            skipped += model.learner.skipped - before if isinstance(model, Adapting) else 0
    return skipped
