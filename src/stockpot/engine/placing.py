"""Jobs as bytes beside the large tensors in them, so that a tensor travels to a machine once.

    packer = Packer(put)                     # put: array -> a reference
    body, places = packer.pack(job)          # the same tensor in a later job is not put again
    job = unpack(body, [array_of(place) for place in places])

Pictures (uint8) are given to the job where they lie, read-only and shared by all workers of a
machine; other tensors may be written by who has them and are copied there.
"""

from __future__ import annotations

import io
import pickle
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

LARGE = 1 << 20
"""Bytes from which a tensor is worth a place of its own."""

Place = TypeVar("Place")
Array = NDArray[Any]


class Packer(Generic[Place]):
    """Packs jobs; remembers what it has placed."""

    def __init__(self, put: Callable[[Array], Place]) -> None:
        self._put = put
        # The tensors are kept beside their places: as long as they live, so does their address.
        self._placed: dict[tuple[Any, ...], tuple[Tensor, Place]] = {}

    def pack(self, job: Any) -> tuple[bytes, list[Place]]:
        """A job without its large tensors, and where those are."""
        places: list[Place] = []
        buffer = io.BytesIO()
        pickler = _Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL)
        pickler.placed = lambda tensor: self._number(tensor, places)
        pickler.dump(job)
        return buffer.getvalue(), places

    def _number(self, tensor: Tensor, places: list[Place]) -> int:
        key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if key not in self._placed:
            self._placed[key] = (tensor, self._put(tensor.detach().numpy()))
        place = self._placed[key][1]
        if place not in places:
            places.append(place)
        return places.index(place)


class _Pickler(pickle.Pickler):
    """Leaves large tensors out."""

    placed: Callable[[Tensor], int]

    def persistent_id(self, obj: Any) -> int | None:
        """The number of a large tensor's place; None for what is written in full."""
        torch = sys.modules.get("torch")  # without it there are no tensors
        if torch is None or type(obj) is not torch.Tensor:
            return None
        if obj.device.type != "cpu" or obj.layout is not torch.strided:
            return None
        if obj.dtype is torch.bfloat16 or obj.requires_grad or obj.nbytes < LARGE:
            return None  # numpy knows no bfloat16
        return self.placed(obj)


def unpack(body: bytes, arrays: Sequence[Array]) -> Any:
    """The job, with its tensors out of arrays in the order of their places."""
    unpickler = _Unpickler(io.BytesIO(body))
    unpickler.arrays = arrays
    return unpickler.load()


class _Unpickler(pickle.Unpickler):
    arrays: Sequence[Array]

    def persistent_load(self, number: Any) -> Tensor:
        """The tensor of a place."""
        import torch

        array = self.arrays[number]
        if array.dtype != np.uint8:
            return torch.from_numpy(array.copy())
        with warnings.catch_warnings():  # nobody writes into pictures
            warnings.simplefilter("ignore", UserWarning)
            return torch.from_numpy(array)
