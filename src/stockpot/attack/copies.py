"""Faster copies of the network under attack, and keeping them from one attack to the next.

Making them takes seconds for a large network, as long as an attack on a few images may take; a
measure attacks the same network batch after batch and radius after radius.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from stockpot.models.forward.folding import Model, folded
from stockpot.models.forward.frozen_graph import frozen
from stockpot.models.forward.joining import with_ends

Precision = Literal["fp32", "bf16"]
Forward = Literal["plain", "folded", "compiled"]


class Faster(NamedTuple):
    """How a model is run: with gradients, and where only answers are asked if that differs."""

    run: Model
    look: Model | None = None


def faster(model: Model, images: Tensor, forward: Forward, precision: Precision) -> Faster:
    """The model as `forward` asks for; to be called in evaluation mode."""
    if forward == "compiled":
        return Faster(cast(Model, torch.compile(model)))
    if forward == "plain":
        return Faster(model)
    run, look = folded(model, images), None
    if precision == "fp32" and run is not model:
        look = frozen(run, images)
    if precision == "bf16" and isinstance(run, nn.Module):
        # The copy is ours: its weights can be bfloat16, which spares a cast at every look.
        run = run.bfloat16() if run is not model else run
    if run is not model and images.is_cuda:
        half = precision == "bf16"
        run = with_ends(run, images.bfloat16() if half else images)
    return Faster(run, look)


class Copies:
    """The last copy that was made; it serves again while the model's weights are what they were.

    For attacks one after the other on a model that nobody else changes meanwhile: a change that
    autograd does not count (through `.data`) would not be noticed.
    """

    def __init__(self) -> None:
        self._of: nn.Module | None = None  # held, so that no id below is used twice
        self._made_for: list[Any] = []
        self._made: Faster | None = None

    def faster(
        self, model: Model, images: Tensor, forward: Forward, precision: Precision
    ) -> Faster:
        """As the function of that name, made anew only where it has to be."""
        if not isinstance(model, nn.Module) or not len(images):
            return faster(model, images, forward, precision)
        wanted = [forward, precision, images.shape[1:], images.dtype, images.device, *_state(model)]
        if self._made is None or self._made_for != wanted:
            made = faster(model, images, forward, precision)
            self._of, self._made_for, self._made = model, wanted, made
        return self._made


def _state(model: nn.Module) -> list[Any]:
    """What a copy depends on: the layers, and where and how often their weights were written."""
    tensors = [*model.parameters(), *model.buffers()]
    written = [0 if each.is_inference() else each._version for each in tensors]
    return [*map(id, model.modules()), *(each.data_ptr() for each in tensors), *written]
