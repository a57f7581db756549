"""What a model itself answers to a few images, in full precision: by this every way is judged."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from threading import Lock

import torch
from torch import Tensor, nn

from stockpot.models.classifier import Classifier
from stockpot.models.forward.arithmetic import products
from stockpot.models.forward.folding import Looked, looked_at

TOLERANCE = {"fp32": 1e-3, "tf32": 1e-2, "bf16": 5e-2}
"""The most by which a logit may differ from full precision, as a share of the largest one."""
FEW = 16
"""Images that a way is judged by."""


def own_look(model: Classifier, few: Tensor) -> Looked:
    """Its answers to some pixels, and how it is built."""
    with asked_once(model):
        looked = looked_at(model, few)
    return looked._replace(answers=looked.answers.float())


def own_answers(model: Classifier, few: Tensor) -> Tensor:
    """Its answers alone: to see how it is built as well makes Python's part of it longer."""
    with asked_once(model):
        answers: Tensor = model(few)
    return answers.float()


def difference(found: Tensor, meant: Tensor) -> float:
    """By how much some answers differ from its own, as a share of the largest of these."""
    scale = meant.abs().amax().clamp(min=1e-12)
    return float((found - meant).abs().amax() / scale)


@contextmanager
def asked_once(model: nn.Module) -> Iterator[None]:
    """A model, or a copy of it, is asked in full precision about a few images; nobody listens."""
    plans = nullcontext() if not _all_plain(model) else _without_plans()
    with unheard(model), products(tf32=False), plans:
        yield


_inside = 0
_before = True
_lock = Lock()


@contextmanager
def _without_plans() -> Iterator[None]:
    """Without cuDNN, for whoever convolves meanwhile: the switch is one for the whole process.

    It takes a few milliseconds to plan for each shape of a convolution, a quarter of a second for
    all of a ResNet-50; as products of matrices a few images take a fifth of that.
    """
    global _inside, _before
    with _lock:
        if not _inside:
            _before = torch.backends.cudnn.enabled
            torch.backends.cudnn.enabled = False
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                torch.backends.cudnn.enabled = _before


def _all_plain(model: nn.Module) -> bool:
    """Whether all convolutions are products as they stand; others would be cut into many."""
    layers = [part for part in model.modules() if isinstance(part, nn.Conv2d)]
    return all(layer.groups == 1 and set(layer.dilation) == {1} for layer in layers)


@contextmanager
def unheard(model: nn.Module) -> Iterator[None]:
    """Nobody listens to the model meanwhile, and copies of it have no listeners."""
    listeners = model._forward_hooks
    model._forward_hooks = OrderedDict()
    try:
        yield
    finally:
        model._forward_hooks = listeners
