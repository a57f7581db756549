"""Any Python function from pixels to logits as a classifier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from stockpot.datasets.stream.geometry import Interpolation
from stockpot.errors import BadParameterError
from stockpot.models.classifier import Classifier, Origin
from stockpot.models.preprocess import Preprocess
from stockpot.models.shipped.answers import Answers
from stockpot.models.shipped.probes import known_by_answers
from stockpot.models.shipped.stated import PLAIN, names_of, settled


def from_function(
    function: Callable[[Any], Any],
    *,
    classes: Sequence[str] | None = None,
    size: int | Sequence[int] = 224,
    resize: int | None = None,
    squash: bool = False,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    interpolation: Interpolation = "bicubic",
    name: str = "",
) -> Classifier:
    """A classifier that asks a function.

    Args:
        function: a torch module, which keeps its gradients, or any other callable, which is given
            a float32 numpy array of N x 3 x H x W pixels in [0, 1] and returns N x classes numbers.
        classes: class names in output order; plain numbers when left out.
        size: the side of the square that it is given, or height and width.
        resize: the short side before the centre crop; `size` when left out.
        squash: resize straight to the size instead, losing the aspect ratio.
        mean: subtracted from the pixels; nothing by default.
        std: divides the pixels after that.
        interpolation: how pictures are resized.
        name: the name under which the model appears in results.
    """
    if not callable(function):
        raise BadParameterError(
            f"expected a function from pixels to logits, got {type(function).__name__}."
        )
    called = name or str(getattr(function, "__name__", type(function).__name__))
    given = {
        "classes": classes, "size": size, "resize": resize, "squash": squash,
        "mean": mean, "std": std, "interpolation": interpolation,
    }  # fmt: skip
    named, preprocess = settled(called, given, PLAIN)
    return asking(function, called, named, preprocess)


def asking(
    function: Callable[[Any], Any],
    what: str,
    classes: tuple[str, ...] | None,
    preprocess: Preprocess,
    *,
    kind: str = "function",
    source: str = "",
    fingerprint: str = "",
) -> Classifier:
    """A classifier around what answers; it is asked once, for the number of its outputs.

    Args:
        function: what answers.
        what: the model in words.
        classes: names, where they are known.
        preprocess: how pictures come to it.
        kind: what it is, for results.
        source: where it came from; `what` when left out.
        fingerprint: its identity; that of its answers to some pictures when left out.
    """
    if isinstance(function, nn.Module):
        network: nn.Module = function.eval()
        kind = type(function).__name__
    else:
        network = Answers(function, f"{what} ({kind})")
    with torch.no_grad():
        blank = np.zeros((1, 3, *preprocess.size), dtype=np.float32)
        logits = network(preprocess.normalise(torch.from_numpy(blank)))
    names = names_of(what, classes, int(logits.shape[1]))
    model = Classifier(network, preprocess, names, Origin(source or what, kind, fingerprint))
    return model if fingerprint else known_by_answers(model)
