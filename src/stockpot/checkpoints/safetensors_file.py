"""Checkpoints in safetensors files, one or sharded, mapped into memory and never copied.

The header of a file is read and checked when it is opened; the values are views of a mapping, so
reading costs no private memory. No file stays open for longer than its values are used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from stockpot.checkpoints.mapped_file import MappedFile
from stockpot.checkpoints.source import TensorInfo
from stockpot.errors import BadCheckpointError

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_LONGEST_HEADER = 100_000_000


class _Place(NamedTuple):
    file: int
    offset: int
    info: TensorInfo


class SafetensorsSource:
    """One model in one or more safetensors files."""

    def __init__(self, files: tuple[Path, ...], *, label: str, folder: Path | None) -> None:
        self.label = label
        self.folder = folder
        self.files = files
        self.tied: Mapping[str, str] = {}
        self._places: dict[str, _Place] = {}
        self._mapped: list[MappedFile] = []
        for number, path in enumerate(files):
            self._open(number, path)

    def _open(self, number: int, path: Path) -> None:
        with path.open("rb") as file:
            facts = os.fstat(file.fileno())
            size = facts.st_size
            header, start = _read_header(path, file.read(8), size, file)
        self._mapped.append(MappedFile(path, facts))
        end = start
        entries = []
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, stop, info = _checked_entry(path, name, entry)
            end = max(end, start + stop)
            entries.append((start + begin, name, info))
        if end != size:
            raise BadCheckpointError(
                f"{path}: the header promises {end} bytes, the file has {size}.",
                hint="It is cut short or corrupt: fetch it again.",
            )
        for offset, name, info in sorted(entries, key=lambda entry: (entry[0], entry[1])):
            if name in self._places:
                raise BadCheckpointError(f"{self.label}: {name!r} is in two shards.")
            self._places[name] = _Place(number, offset, info)

    def __del__(self) -> None:
        for file in getattr(self, "_mapped", ()):
            file.close()

    def tensors(self) -> Mapping[str, TensorInfo]:
        return {name: place.info for name, place in self._places.items()}

    def read(self, name: str) -> Tensor:
        file, offset, info = self._place(name)
        if not info.numel:
            return torch.empty(info.shape, dtype=info.dtype)
        return file.whole(offset, info.numel, info.dtype).view(info.shape)

    def copies(self, names: Iterable[str]) -> dict[str, Tensor]:
        """These tensors in memory of their own; every byte is read once."""
        made: dict[str, Tensor] = {}
        wanted: dict[int, list[tuple[int, Tensor]]] = {}
        for name in names:
            place = self._places[name]
            made[name] = torch.empty(place.info.shape, dtype=place.info.dtype)
            wanted.setdefault(place.file, []).append((place.offset, made[name]))
        for file, places in wanted.items():
            self._mapped[file].fill(places)
        return made

    def within(self, number: int) -> list[tuple[str, int, TensorInfo]]:
        """The tensors of a file: name, first byte, and what it is."""
        return [
            (name, place.offset, place.info)
            for name, place in self._places.items()
            if place.file == number
        ]

    def extent(self, number: int) -> tuple[int, int]:
        """From which byte to which the tensors of a file lie in it."""
        ends = [(begin, begin + info.nbytes) for _, begin, info in self.within(number)]
        return (min(ends)[0], max(stop for _, stop in ends)) if ends else (0, 0)

    def read_into(self, number: int, begin: int, room: Tensor) -> None:
        """Fill memory of somebody's own with the bytes of a file from one on."""
        self._mapped[number].fill([(begin, room)])

    def stretch(self, name: str, start: int, stop: int) -> Tensor:
        file, offset, info = self._place(name)
        if stop <= start:
            return torch.empty(0, dtype=info.dtype)
        return file.stretch(offset + start * info.dtype.itemsize, stop - start, info.dtype)

    def prefetch(self, name: str, start: int, stop: int) -> None:
        file, offset, info = self._place(name)
        size = info.dtype.itemsize
        file.fetch(offset + start * size, (stop - start) * size)

    def _place(self, name: str) -> tuple[MappedFile, int, TensorInfo]:
        place = self._places[name]
        return self._mapped[place.file], place.offset, place.info


def _read_header(
    path: Path, first: bytes, size: int, file: object
) -> tuple[dict[str, object], int]:
    length = int.from_bytes(first, "little")
    if len(first) < 8 or length > min(size - 8, _LONGEST_HEADER):
        raise BadCheckpointError(f"{path}: not a safetensors file, or cut short ({size} bytes).")
    try:
        header = json.loads(file.read(length))  # type: ignore[attr-defined]
    except ValueError:
        header = None
    if not isinstance(header, dict):
        raise BadCheckpointError(f"{path}: the safetensors header is not valid JSON.")
    return header, 8 + length


def _checked_entry(path: Path, name: str, entry: object) -> tuple[int, int, TensorInfo]:
    try:
        dtype = DTYPES[entry["dtype"]]  # type: ignore[index]
        begin, stop = (int(value) for value in entry["data_offsets"])  # type: ignore[index]
        info = TensorInfo(tuple(int(value) for value in entry["shape"]), dtype)  # type: ignore[index]
    except (KeyError, TypeError, ValueError) as problem:
        raise BadCheckpointError(
            f"{path}: {name!r} has a broken header entry ({problem})."
        ) from None
    if stop - begin != info.nbytes or begin < 0:
        raise BadCheckpointError(
            f"{path}: {name!r} is {info} but holds {stop - begin} bytes.",
            hint="The file is corrupt: fetch it again.",
        )
    return begin, stop, info
