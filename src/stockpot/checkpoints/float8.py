"""Weights stored in eight bits, read as the numbers they stand for.

Few operations know FP8, and no array of numpy can hold it. A tensor with a scale beside it is
multiplied by that scale and has its dtype: one scale for all (`weight_scale`), one per row, or one
per block (`weight_scale_inv`, which is multiplied too, in spite of its name). A tensor without one
is cast to bfloat16, which holds every FP8 number exactly. Scales of activations are left out: they
belong to arithmetic in FP8.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from stockpot.checkpoints.source import Source, TensorInfo
from stockpot.errors import BadCheckpointError
from stockpot.foreign import read_json_object

EIGHT_BITS = (
    torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
)  # fmt: skip
_PLAIN = torch.bfloat16
_SCALE_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_BLOCK = 128
_OF_ACTIVATIONS = ("input_scale", "activation_scale", "output_scale", "scale_input")


class Float8Source:
    """A checkpoint of which some tensors are stored in FP8."""

    def __init__(self, source: Source) -> None:
        infos = source.tensors()
        self.label = source.label
        self.folder: Path | None = source.folder
        self.files = source.files
        self._source = source
        self._scales = {
            name: _scale_of(name, infos) for name, i in infos.items() if i.dtype in EIGHT_BITS
        }
        left_out = {scale for scale in self._scales.values() if scale}
        left_out |= {f"{_module(name)}{kind}" for name in self._scales for kind in _OF_ACTIVATIONS}
        left_out.add("scaled_fp8")
        self._infos = {
            name: info._replace(dtype=self._dtype(name, infos)) if name in self._scales else info
            for name, info in infos.items()
            if name not in left_out
        }
        self.tied: Mapping[str, str] = {
            alias: name
            for alias, name in source.tied.items()
            if alias in self._infos and name in self._infos
        }
        # A walk asks for one tensor stretch by stretch.
        self._widened = lru_cache(maxsize=2)(self._widen)

    def _dtype(self, name: str, infos: Mapping[str, TensorInfo]) -> torch.dtype:
        scale = self._scales[name]
        if scale is None:
            return _PLAIN
        dtype = infos[scale].dtype
        return dtype if dtype in _SCALE_DTYPES else torch.float32

    def tensors(self) -> Mapping[str, TensorInfo]:
        return self._infos

    def read(self, name: str) -> Tensor:
        return self._widened(name) if name in self._scales else self._source.read(name)

    def stretch(self, name: str, start: int, stop: int) -> Tensor:
        if name in self._scales:
            return self._widened(name).reshape(-1)[start:stop]
        return self._source.stretch(name, start, stop)

    def prefetch(self, name: str, start: int, stop: int) -> None:
        self._source.prefetch(name, start, stop)

    def _widen(self, name: str) -> Tensor:
        dtype = self._infos[name].dtype
        values, scale = self._source.read(name), self._scales[name]
        if scale is None:
            return values.to(dtype)
        factors = self._source.read(scale).to(torch.float32)
        return (values.to(torch.float32) * self._spread(factors, values, name)).to(dtype)

    def _spread(self, factors: Tensor, values: Tensor, name: str) -> Tensor:
        """Scales in a shape that multiplies the values."""
        if factors.numel() == 1:
            return factors.reshape(())
        # A matrix may have as many blocks as rows (7168 x 16384 in blocks of 128): the shape tells.
        if factors.numel() == values.shape[0] == factors.shape[0]:
            return factors.reshape(-1, *[1] * (values.ndim - 1))
        if factors.ndim == values.ndim:
            for axis, (count, size) in enumerate(zip(factors.shape, values.shape, strict=True)):
                block = self._block(axis, count, size)
                if block is None:
                    break
                factors = factors.repeat_interleave(block, axis).narrow(axis, 0, size)
            else:
                return factors
        shapes = " and ".join("x".join(map(str, part.shape)) for part in (values, factors))
        raise BadCheckpointError(
            f"{self.label}: the scales of {name!r} do not fit it ({shapes}): expected one, one per "
            "row or one per block."
        )

    def _block(self, axis: int, count: int, size: int) -> int | None:
        """The side of a block along an axis: as the configuration says, 128, or what divides."""
        sizes = [self._stated[axis]] if axis < len(self._stated) else []
        sizes += [_BLOCK, size // count if size % count == 0 else 0]
        return next((block for block in sizes if block and -(-size // block) == count), None)

    @property
    def _stated(self) -> list[int]:
        path = None if self.folder is None else self.folder / "config.json"
        if path is None or not path.is_file():
            return []
        quantised = read_json_object(path, BadCheckpointError).get("quantization_config")
        block = quantised.get("weight_block_size") if isinstance(quantised, Mapping) else None
        return [size for size in block if isinstance(size, int)] if isinstance(block, list) else []


def _module(name: str) -> str:
    return name[: name.rfind(".") + 1]


def _scale_of(name: str, infos: Mapping[str, TensorInfo]) -> str | None:
    module = _module(name)
    names = (f"{name}_scale", f"{name}_scale_inv", f"{module}scale_weight", f"{module}scale_inv")
    return next((scale for scale in names if scale in infos), None)
