"""Logits and relevance from one forward pass, for vision transformers and convolutional nets."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from stockpot.explain.attention import attending, find_tower, need_tower
from stockpot.explain.grad_cam import grad_cam, watching_maps
from stockpot.explain.rollout import Layers, rollout
from stockpot.models.classifier import Classifier

Method = Literal["auto", "rollout", "grad_cam"]


class Explained(NamedTuple):
    """Logits (still part of the graph) and the relevance of each cell (not part of it)."""

    logits: Tensor
    relevance: Tensor


def explain_forward(
    model: Classifier,
    pixels: Tensor,
    targets: Tensor | None = None,
    *,
    method: Method = "auto",
    layers: Layers = "all",
) -> Explained:
    """Classify and say where the evidence for the target class lies.

    Args:
        model: any classifier; its parameters or its pixels must require gradients.
        pixels: NCHW, as the classifier takes them.
        targets: the class to explain for every image; the predicted one when left out.
        method: `rollout` for transformers, `grad_cam` for convolutional networks; `auto` chooses.
        layers: rollout over `all` blocks, or the `last` alone.
    """
    tower = find_tower(model.network) if method != "grad_cam" else None
    if method == "rollout":
        tower = need_tower(model.network, "rollout")
    if tower is None:
        with watching_maps(model.network) as maps:
            logits = model(pixels)
        return Explained(logits, grad_cam(maps, target_score(logits, targets)))
    with attending(model.network) as watch:
        logits = model(pixels)
    size = model.preprocess.size
    grid = (size.height // tower.patch[0], size.width // tower.patch[1])
    score = target_score(logits, targets)
    return Explained(logits, rollout(watch, score, tower, grid, layers))


def target_score(logits: Tensor, targets: Tensor | None) -> Tensor:
    """The sum over the batch of each image's target logit; images do not see each other."""
    chosen = logits.argmax(dim=1) if targets is None else targets
    return logits.float().gather(1, chosen[:, None]).sum()


def normalised(relevance: Tensor) -> Tensor:
    """Each image's relevance divided by its largest; nothing is subtracted."""
    largest = relevance.flatten(1).amax(dim=1)
    return relevance / (largest[:, None, None] + 1e-8)


def enlarged(cells: Tensor, size: tuple[int, int]) -> Tensor:
    """Values of cells [images, rows, columns] at every pixel, by nearest neighbour."""
    values = cells[:, None].float()
    grown = torch.nn.functional.interpolate(values, size=size, mode="nearest-exact")[:, 0]
    return grown > 0.5 if cells.dtype == torch.bool else grown
