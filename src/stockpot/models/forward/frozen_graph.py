"""A network as a frozen graph: the fastest forward passes on a CPU, without gradients.

Random search asks for nothing but logits, thousands of times. In the graph weights are constants in
the layout that the processor's library wants, and convolutions apply what follows them at once.
"""

from __future__ import annotations

import warnings
from typing import cast

import torch
from torch import Tensor, nn

from stockpot.models.forward.folding import Model

_FEW = 8


def frozen(model: Model, images: Tensor) -> Model:
    """The graph of a module in evaluation mode, or the model itself where a graph would differ.

    Tracing follows one batch; a network that asks for the size or the content of its batch may take
    other ways with another. So the graph is compared on batches of other sizes.
    """
    if not isinstance(model, nn.Module) or images.device.type != "cpu" or not len(images):
        return model
    few = images[:_FEW].contiguous()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the tracer could not see is found below
        try:
            traced = torch.jit.trace(model, few, check_trace=False)  # type: ignore[no-untyped-call]
            graph = torch.jit.optimize_for_inference(torch.jit.freeze(traced))
            same = all(_alike(graph, model, part) for part in _batches(images, few))
        except Exception:  # of whatever kind: not every module can be traced
            return model
    return cast(Model, graph) if same else model


def _batches(images: Tensor, few: Tensor) -> list[Tensor]:
    """Batches of several sizes; the graph is also looked at more than once, as it adapts to use."""
    other = images[-(len(few) // 2 + 1) :].contiguous()
    return [few, few, few[:1], other, torch.cat([other, few])]


def _alike(graph: Model, model: Model, pixels: Tensor) -> bool:
    expected, found = model(pixels), graph(pixels)
    scale = expected.abs().amax().clamp(min=1e-12)
    return float((found - expected).abs().amax() / scale) < 1e-4
