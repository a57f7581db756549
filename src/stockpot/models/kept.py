"""Models that are kept in memory for the next who asks: two, or all while several are measured."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

import torch

from stockpot.models.classifier import Classifier

ROOM = 2 * 2**30
"""Bytes of weights that are held at a time where no GPU is: twenty ResNet-50, six ViT-B."""
_SHARE = 3
"""Of the memory of a GPU that is free, weights take one part in so many."""
_LAST = 2
_models: dict[Hashable, Classifier] = {}
_holding = 0


def kept(key: Hashable, load: Callable[[], Classifier]) -> Classifier:
    """The model of this key, loaded now or before; its weights must be left alone."""
    if key in _models:
        _models[key] = _models.pop(key)  # the last one asked for is the last to go
    else:
        _models[key] = load()
        _let_go()
    return _models[key]


@contextmanager
def holding_models() -> Iterator[None]:
    """Keep every model that is asked for meanwhile; who asks sees to it that there is room."""
    global _holding
    _holding += 1
    try:
        yield
    finally:
        _holding -= 1
        _let_go()


def _let_go() -> None:
    while not _holding and len(_models) > _LAST:
        del _models[next(iter(_models))]


def model_room(device: torch.device) -> int:
    """How many bytes of weights are held on a device at a time."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0]) // _SHARE
    return ROOM


def weight_bytes(model: Classifier) -> int:
    """What the weights of a model take."""
    tensors = (*model.parameters(), *model.buffers())
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
