"""A safetensors file written piece by piece, by several threads, in any order.

The format keeps all shapes in a header before the data, so once those are known every tensor has
its place in the file and no tensor has to wait for another, or be held in memory for it.
"""

from __future__ import annotations

import errno
import json
import os
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import NamedTuple

import torch
from torch import Tensor

from stockpot.checkpoints.safetensors_file import DTYPES
from stockpot.checkpoints.source import TensorInfo
from stockpot.files import open_files_allowed

_CODES = {dtype: code for code, dtype in DTYPES.items()}
_INDEX = "model.safetensors.index.json"


class _Place(NamedTuple):
    path: Path
    offset: int
    info: TensorInfo


class ShardWriter:
    """The weights of one model, in one file or in shards of at most `max_shard` bytes."""

    def __init__(self, folder: Path, infos: Mapping[str, TensorInfo], *, max_shard: int) -> None:
        self._places: dict[str, _Place] = {}
        self._paths: list[Path] = []
        shards = _split(infos, max_shard)
        names = [
            "model.safetensors"
            if len(shards) == 1
            else f"model-{number:05d}-of-{len(shards):05d}.safetensors"
            for number in range(1, len(shards) + 1)
        ]
        for file_name, shard in zip(names, shards, strict=True):
            self._create(folder / file_name, shard)
        if len(shards) > 1:
            _write_index(folder, names, shards)

    def _create(self, path: Path, infos: Mapping[str, TensorInfo]) -> None:
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        offset = 0
        for name, info in infos.items():
            header[name] = {
                "dtype": _CODES[info.dtype],
                "shape": list(info.shape),
                "data_offsets": [offset, offset + info.nbytes],
            }
            offset += info.nbytes
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        start = 8 + len(text)
        try:
            _reserve(descriptor, start + offset)
            os.pwrite(descriptor, len(text).to_bytes(8, "little") + text, 0)
        finally:
            os.close(descriptor)
        self._paths.append(path)
        for name, info in infos.items():
            self._places[name] = _Place(path, start, info)
            start += info.nbytes

    def write(self, name: str, values: Tensor, *, start: int = 0) -> None:
        """Write a contiguous stretch of a tensor, from its element number `start` on."""
        place = self._places[name]
        if not values.numel():
            return
        raw = values.detach().to("cpu", place.info.dtype).contiguous().reshape(-1)
        view = raw.view(torch.uint8).numpy().data
        offset = place.offset + start * place.info.dtype.itemsize
        file = _open_files.get(place.path)
        while view:
            count = os.pwrite(file.descriptor, view, offset)
            view, offset = view[count:], offset + count

    def close(self) -> None:
        """Close the files."""
        for path in self._paths:
            _open_files.forget(path)

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _OpenFile:
    """A file to write to, closed when nobody uses it any more."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_WRONLY)

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)


class _OpenFiles:
    """The files written to last; not all, because many models have more than may be open."""

    def __init__(self) -> None:
        self._files: OrderedDict[Path, _OpenFile] = OrderedDict()
        self._lock = Lock()

    def get(self, path: Path) -> _OpenFile:
        with self._lock:
            if path not in self._files:
                while len(self._files) >= max(4, open_files_allowed() // 4):
                    self._files.popitem(last=False)
                self._files[path] = _OpenFile(path)
            self._files.move_to_end(path)
            return self._files[path]

    def forget(self, path: Path) -> None:
        with self._lock:
            self._files.pop(path, None)


_open_files = _OpenFiles()


def _reserve(descriptor: int, size: int) -> None:
    # Take the whole space now, so that a full disk is met before the work and not after it.
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, 0, size)
            return
        except OSError as problem:
            if problem.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
    os.ftruncate(descriptor, size)


def _split(infos: Mapping[str, TensorInfo], max_shard: int) -> list[dict[str, TensorInfo]]:
    shards: list[dict[str, TensorInfo]] = [{}]
    size = 0
    for name, info in infos.items():
        if size and size + info.nbytes > max_shard:
            shards.append({})
            size = 0
        shards[-1][name] = info
        size += info.nbytes
    return shards


def _write_index(folder: Path, names: list[str], shards: list[dict[str, TensorInfo]]) -> None:
    total = sum(info.nbytes for shard in shards for info in shard.values())
    weight_map = {name: file for file, shard in zip(names, shards, strict=True) for name in shard}
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / _INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
