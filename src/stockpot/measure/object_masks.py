"""Does the relevance of a model cover the objects? Masks against ground truth, per threshold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadDataError, BadParameterError
from stockpot.explain.relevance import Layers, Method, enlarged, normalised
from stockpot.explain.run import explain
from stockpot.measure import measures
from stockpot.measure.measurement import Context, Measurement, proportion, with_interval
from stockpot.models.classifier import Classifier
from stockpot.results.resamples import Groups
from stockpot.results.schema import Score
from stockpot.results.statistics import bootstrap_mean
from stockpot.score.scorer import scorer_for

RATES = ("image_masking_rate", "object_masking_rate", "mask_iou")


@measures.register("object_masks", paper="arXiv:2303.03052")
def object_masks(
    model: Classifier,
    data: Dataset,
    context: Context,
    *,
    thresholds: tuple[float, ...] = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7),
    target: str = "label",
    method: Method = "auto",
    layers: Layers = "all",
) -> Measurement:
    """Image masking rate, object masking rate and IoU of relevance masks, and the pointing game.

    The mask is where the relevance exceeds a share (the threshold) of the picture's largest. Per
    picture: how much of it is masked, how much of its true object is, and intersection over union
    of both; pictures without an object are left out. `pointing` is the share of pictures whose
    most relevant cell lies on the object.

    Args:
        thresholds: shares of the largest relevance.
        target: explain the true class (`label`) or the `predicted` one.
        method: `rollout`, `grad_cam`, or what fits the network.
        layers: rollout over `all` blocks or the `last`.
    """
    if not thresholds or not all(0 <= t < 1 for t in thresholds):
        raise BadParameterError(
            f"object_masks: expected thresholds from 0 to below 1, got {list(thresholds)}."
        )
    if target not in ("label", "predicted"):
        raise BadParameterError(f"target: expected label or predicted, got {target!r}.")
    if data.masks is None:
        raise BadDataError(
            f"{data.name} has no object masks to compare with.",
            hint="object_on_context has them.",
        )
    scorer = scorer_for(model.classes, data)
    rows: dict[float, list[Tensor]] = {threshold: [] for threshold in thresholds}
    pointing = []
    done = 0
    for batch in data.batches(context.batch_size, model.preprocess.fit):
        truth = data.masks[batch.rows].to(context.device)
        # Where several outputs answer a class, the first of them is explained.
        outputs = scorer.mapping.outputs[batch.labels].to(context.device)
        labels = outputs if target == "label" else None
        images = batch.images.to(context.device)
        relevance = explain(
            model, images, labels, method=method, layers=layers, batch_size=len(images)
        )
        cells = normalised(relevance)
        for threshold in thresholds:
            rows[threshold].append(rates(cells > threshold, truth).cpu())
        pointing.append(points_at(cells, truth).cpu())
        done += len(images)
        context.progress("object_masks", done, len(data))
    shown = data.masks.flatten(1).any(dim=1).numpy()
    groups = None if data.groups is None else np.asarray(data.groups)[shown]
    scores = [proportion("pointing", torch.cat(pointing).numpy()[shown], groups=groups)]
    for threshold in thresholds:
        table = torch.cat(rows[threshold]).double().numpy()[shown]
        scores += _scores(table, threshold, context.seed, groups)
    return Measurement(
        scores=scores,
        convention=f"relevance:{method}/{layers}/{target}; mask: share of largest; mean per image",
        images=2 * len(data),
        notes=scorer.notes,
        class_space=scorer.description,
    )


def rates(masked: Tensor, truth: Tensor) -> Tensor:
    """For every picture the share that is masked, the share of its object that is, and the IoU.

    Args:
        masked: booleans [images, rows, columns] of cells.
        truth: booleans [images, H, W].
    """
    pixels = enlarged(masked, (truth.shape[1], truth.shape[2]))
    both = (pixels & truth).flatten(1).sum(dim=1).float()
    either = (pixels | truth).flatten(1).sum(dim=1).clamp(min=1)
    objects = truth.flatten(1).sum(dim=1).clamp(min=1)
    image = pixels.flatten(1).float().mean(dim=1)
    return torch.stack([image, both / objects, both / either], dim=1)


def points_at(cells: Tensor, truth: Tensor) -> Tensor:
    """Whether the most relevant cell touches the object."""
    largest = cells.flatten(1).argmax(dim=1)
    one = torch.zeros_like(cells, dtype=torch.bool).flatten(1)
    one[torch.arange(len(one), device=one.device), largest] = True
    pixels = enlarged(one.view_as(cells), (truth.shape[1], truth.shape[2]))
    return (pixels & truth).flatten(1).any(dim=1)


def _scores(
    table: NDArray[np.float64], threshold: float, seed: int, groups: Groups | None
) -> Sequence[Score]:
    return [
        with_interval(
            metric,
            float(table[:, column].mean()) if len(table) else 0.0,
            len(table),
            bootstrap_mean(table[:, column], seed=seed, groups=groups),
            better=None if metric == "image_masking_rate" else True,
            condition={"threshold": threshold},
        )
        for column, metric in enumerate(RATES)
    ]
