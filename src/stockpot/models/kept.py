"""Models that are kept in memory for the next who asks: two, or all while several are measured."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from threading import Lock

import torch

from stockpot.models.classifier import Classifier

ROOM = 2 * 2**30
"""Bytes of weights that are held at a time where no GPU is: twenty ResNet-50, six ViT-B."""
_SHARE = 3
"""Of the memory of a GPU that is free, weights take one part in so many."""
_LAST = 2
_models: dict[Hashable, Classifier] = {}
_holding = 0
_lock = Lock()
_loading: dict[Hashable, Lock] = {}


def kept(key: Hashable, load: Callable[[], Classifier]) -> Classifier:
    """The model of this key, loaded now or before; its weights must be left alone.

    Threads may ask at the same time: whoever asks for what another one is loading waits for that.
    """
    with _lock:
        turn = _loading.setdefault(key, Lock())
    try:
        with turn:
            with _lock:
                found = _models.get(key)
            if found is None:
                found = load()
            with _lock:
                _models.pop(key, None)  # the last one asked for is the last to go
                _models[key] = found
                _let_go()
            return found
    finally:
        with _lock:
            _loading.pop(key, None)


@contextmanager
def holding_models() -> Iterator[None]:
    """Keep every model that is asked for meanwhile; who asks sees to it that there is room."""
    global _holding
    _holding += 1
    try:
        yield
    finally:
        with _lock:
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
