"""What a model itself answers to a few images, in full precision: by this every way is judged."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

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
    with unheard(model), products(tf32=False):
        looked = looked_at(model, few)
    return looked._replace(answers=looked.answers.float())


def own_answers(model: Classifier, few: Tensor) -> Tensor:
    """Its answers alone: to see how it is built as well makes Python's part of it longer."""
    with unheard(model), products(tf32=False):
        answers: Tensor = model(few)
    return answers.float()


def difference(found: Tensor, meant: Tensor) -> float:
    """By how much some answers differ from its own, as a share of the largest of these."""
    scale = meant.abs().amax().clamp(min=1e-12)
    return float((found - meant).abs().amax() / scale)


@contextmanager
def unheard(model: nn.Module) -> Iterator[None]:
    """Nobody listens to the model meanwhile, and copies of it have no listeners."""
    listeners = model._forward_hooks
    model._forward_hooks = OrderedDict()
    try:
        yield
    finally:
        model._forward_hooks = listeners
