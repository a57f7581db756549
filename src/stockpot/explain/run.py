"""`stockpot.explain`: where in each picture the evidence for a class lies."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import torch
from PIL import Image
from torch import Tensor

from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadParameterError, shortened
from stockpot.explain.overlay import overlay, sheet
from stockpot.explain.relevance import Layers, Method, explain_forward
from stockpot.models.classifier import Classifier, in_evaluation
from stockpot.models.load import load_model
from stockpot.score.class_space import match_classes


def explain(
    model: str | Path | Classifier,
    images: Tensor,
    targets: Tensor | None = None,
    *,
    method: Method = "auto",
    layers: Layers = "all",
    batch_size: int = 128,
) -> Tensor:
    """The relevance of every patch (or map position), as [images, rows, columns].

    Args:
        model: as for `load_model`.
        images: NCHW pixels, float in [0, 1] or uint8.
        targets: the class to explain for every image; the predicted one when left out.
        method: `rollout` for vision transformers (arXiv:2103.15679), `grad_cam` for convolutional
            networks (arXiv:1610.02391); `auto` takes the one that fits.
        layers: rollout over `all` blocks, or the `last` alone.
        batch_size: images per pass.
    """
    for name, value, known in (("method", method, Method), ("layers", layers, Layers)):
        if value not in get_args(known):
            raise BadParameterError(
                f"explain: {name}: expected one of {', '.join(get_args(known))}, got {value!r}."
            )
    _check_pixels(images)
    classifier = load_model(model)
    if targets is not None:
        targets = _as_targets(targets, len(images), len(classifier.classes))
    maps = []
    with in_evaluation(classifier):
        for start in range(0, len(images), batch_size):
            part = slice(start, start + batch_size)
            pixels = images[part].to(classifier.device)
            pixels = pixels.float() if pixels.is_floating_point() else pixels.float() / 255
            chosen = None if targets is None else targets[part].to(classifier.device)
            with torch.enable_grad():
                # A network whose weights are frozen still needs a graph: it starts at the pixels.
                pixels = pixels.detach().requires_grad_()
                seen = explain_forward(classifier, pixels, chosen, method=method, layers=layers)
            maps.append(seen.relevance.detach())
    return torch.cat(maps)


def _check_pixels(images: Tensor) -> None:
    if not isinstance(images, Tensor) or images.ndim != 4 or not len(images):
        what = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
        raise BadParameterError(
            f"explain: expected a tensor of pictures N x C x H x W, one at least, got {what}.",
            hint="Add a batch axis to a single picture.",
        )
    if images.is_floating_point():
        low, high = (float(value) for value in images.detach().aminmax())
        if not 0 <= low <= high <= 1:  # NaN fails every comparison
            raise BadParameterError(
                f"explain: expected pixels in [0, 1], got values from {low:g} to {high:g}.",
                hint="Normalisation belongs inside the model.",
            )


def _as_targets(targets: Tensor, count: int, classes: int) -> Tensor:
    try:
        found = torch.as_tensor(targets)
    except (TypeError, ValueError, RuntimeError):
        found = torch.empty(0)
    shaped = found.shape == (count,) and not found.is_floating_point()
    if not shaped or int(found.min()) < 0 or int(found.max()) >= classes:
        raise BadParameterError(
            f"explain: expected one target per image ({count}), the number of a class from 0 to "
            f"{classes - 1}, got {shortened(repr(targets), 80)}."
        )
    return found.long()


def overlays(
    model: Classifier,
    data: Dataset,
    *,
    predicted: bool = False,
    method: Method = "auto",
    layers: Layers = "all",
) -> Image.Image:
    """A sheet of all pictures of a (small) dataset beside their relevance.

    Args:
        model: the classifier to explain.
        data: the pictures.
        predicted: explain the predicted class, not the true one.
        method: as for `explain`.
        layers: as for `explain`.
    """
    shown = [batch.images for batch in data.batches(128, model.preprocess.fit)]
    pixels = torch.cat(shown).float() / 255
    outputs = match_classes(model.classes, data.classes).outputs
    targets = None if predicted else outputs[data.labels]
    maps = explain(model, pixels, targets, method=method, layers=layers).cpu()
    heat = overlay(pixels, maps)
    lines = [[picture, warm] for picture, warm in zip(pixels, heat, strict=True)]
    return sheet(lines, ["picture", "relevance"], zoom=max(1, 128 // pixels.shape[-1]))
