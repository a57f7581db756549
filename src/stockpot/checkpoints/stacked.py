"""Layers of one or more checkpoints under new numbers, read as one checkpoint.

Slices of models put one after the other make a deeper or shallower model: every tensor of it is a
tensor of one of the models, under another number.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from stockpot.checkpoints.source import Source, TensorInfo


class StackedSource:
    """A checkpoint whose tensors lie in others.

    Args:
        places: for every tensor of the stack, in order, where it lies.
        label: how messages call it; it says which layers of which models, and so what it is.
        layers: how many layers there are, for the configuration.
    """

    def __init__(
        self, places: Mapping[str, tuple[Source, str]], *, label: str, layers: int
    ) -> None:
        sources = list({id(source): source for source, _ in places.values()}.values())
        self.label = label
        self.layers = layers
        self.folder: Path | None = sources[0].folder
        self.files = tuple(dict.fromkeys(path for one in sources for path in one.files))
        self.tied: Mapping[str, str] = {}
        self._places = dict(places)
        self._infos = {name: one.tensors()[own] for name, (one, own) in places.items()}

    def tensors(self) -> Mapping[str, TensorInfo]:
        return self._infos

    def read(self, name: str) -> Tensor:
        source, own = self._places[name]
        return source.read(own)

    def stretch(self, name: str, start: int, stop: int) -> Tensor:
        source, own = self._places[name]
        return source.stretch(own, start, stop)

    def prefetch(self, name: str, start: int, stop: int) -> None:
        source, own = self._places[name]
        source.prefetch(own, start, stop)
