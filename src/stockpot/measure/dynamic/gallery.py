"""Pictures for the page: the image, what was made of it, and what was said of both."""

from __future__ import annotations

import base64
from io import BytesIO

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from stockpot.datasets.dataset import Dataset
from stockpot.measure.dynamic.evaluate import Evaluation
from stockpot.models.classifier import Classifier
from stockpot.results.schema import Picture

_SIDE = 96  # larger images are reduced: a page holds a few dozen
_GAP = 4


def gallery(
    model: Classifier, data: Dataset, found: Evaluation, count: int, unmoved: int
) -> tuple[Picture, ...]:
    """Up to `count` images: those that fooled the model first, then those that did not."""
    outcomes = found.outcomes
    kept = np.zeros(len(data), dtype=bool)
    kept[found.pictured.numpy()] = True
    fooled = kept & outcomes.validated & outcomes.correct & ~outcomes.withstood
    stood = kept & outcomes.validated & outcomes.correct & outcomes.withstood
    share = max((3 * count) // 4, count - int(stood.sum()))
    first = _spread(fooled, share)
    rows = [*first, *_spread(stood, count - len(first))]
    originals = {int(row): image for row, image in _originals(model, data, rows)}
    pictures = []
    for row in rows:
        (made,) = found.images([row])
        pictures.append(
            Picture(
                png=_side_by_side(originals[row], made),
                facts={
                    "row": row,
                    "label": data.classes[int(data.labels[row])],
                    "before": found.before[row],
                    "after": found.after[row],
                    "oracle": round(float(found.confidence[row]), 4),
                    "steps": int(outcomes.accepted[row]) - unmoved,
                },
            )
        )
    return tuple(pictures)


def _spread(flags: np.ndarray[tuple[int], np.dtype[np.bool_]], count: int) -> list[int]:
    """Rows from all over the data, and so of many classes."""
    rows = np.flatnonzero(flags)
    if len(rows) <= max(count, 0):
        return [int(row) for row in rows]
    return [int(rows[place]) for place in np.linspace(0, len(rows) - 1, count).astype(int)]


def _originals(model: Classifier, data: Dataset, rows: list[int]) -> list[tuple[int, Tensor]]:
    if not rows:
        return []
    part = data.take(rows)
    images = torch.cat([batch.images for batch in part.batches(256, model.preprocess.fit)])
    return list(zip(rows, images, strict=True))


def _side_by_side(first: Tensor, second: Tensor) -> str:
    shown = [_reduced(image) for image in (first, second)]
    width, height = shown[0].size
    sheet = Image.new("RGB", (2 * width + _GAP, height), "white")
    sheet.paste(shown[0], (0, 0))
    sheet.paste(shown[1], (width + _GAP, 0))
    stream = BytesIO()
    sheet.save(stream, format="PNG", optimize=True)
    return base64.b64encode(stream.getvalue()).decode("ascii")


def _reduced(image: Tensor) -> Image.Image:
    picture = Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())
    picture.thumbnail((_SIDE, _SIDE), Image.Resampling.LANCZOS)
    return picture
