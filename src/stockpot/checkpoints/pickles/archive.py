"""Where a file of `torch.save` keeps its objects and the values of its tensors.

Since torch 1.6 it is a zip archive: `NAME/data.pkl` and one entry `NAME/data/KEY` for each
storage; TorchScript files look the same. Before, it was a row of pickles (a magic number, a
version, facts about the machine, the objects, the keys of the storages) and then the storages, each
with its length in front.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from stockpot.checkpoints.pickles.inert import CODES, InertUnpickler, Storage, TensorRecord
from stockpot.errors import BadCheckpointError

_MAGIC = 0x1950A86A20F9469CFC6C


class Archive(NamedTuple):
    """What a file holds, with its tensors described and not read."""

    content: Any
    foreign: tuple[str, ...]
    """Names of functions and classes that the file asked for and that were not run."""
    stored: Callable[[Storage], bytes]
    """The bytes of a storage."""


def read_archive(path: Path) -> Archive:
    """Read a file of `torch.save`, of any version since 0.4, or a TorchScript file."""
    if not zipfile.is_zipfile(path):
        return _row_of_pickles(path)
    archive = zipfile.ZipFile(path)
    names = set(archive.namelist())
    root = next((name for name in archive.namelist() if name.endswith("/data.pkl")), None)
    if root is None:
        raise BadCheckpointError(f"{path}: a zip archive, but none that torch.save made.")
    root = root.removesuffix("data.pkl")
    for entry in archive.infolist():  # the code of a TorchScript file is, and is not read
        ours = entry.filename.startswith((f"{root}data.pkl", f"{root}data/"))
        if ours and entry.compress_type != zipfile.ZIP_STORED:
            raise BadCheckpointError(f"{path}: its values are compressed, as torch never does.")
    order = f"{root}byteorder"
    if order in names and archive.read(order) != b"little":
        raise BadCheckpointError(f"{path}: was saved on a machine with another order of bytes.")
    with archive.open(f"{root}data.pkl") as file:
        unpickler = InertUnpickler(file)  # type: ignore[arg-type]
        content = unpickler.load()

    def stored(storage: Storage) -> bytes:
        name = f"{root}data/{storage.key}"
        if name not in names:
            raise BadCheckpointError(f"{path}: the values {name} are missing.")
        return archive.read(name)

    return Archive(content, tuple(unpickler.foreign), stored)


def _row_of_pickles(path: Path) -> Archive:
    file = path.open("rb")
    try:
        if InertUnpickler(file).load() != _MAGIC:
            raise ValueError("another beginning")
        _version, machine = InertUnpickler(file).load(), InertUnpickler(file).load()
    except Exception as problem:  # a pickle that is none can fail anywhere
        reason = f"{type(problem).__name__}: {problem}".partition("\n")[0]
        raise BadCheckpointError(f"{path}: not a file of torch.save ({reason}).") from None
    if isinstance(machine, dict) and machine.get("little_endian") is False:
        raise BadCheckpointError(f"{path}: was saved on a machine with another order of bytes.")
    unpickler = _Collecting(file)
    content = unpickler.load()
    keys = InertUnpickler(file).load()
    places = _places(file, keys, unpickler.elements)

    def stored(storage: Storage) -> bytes:
        start, length = places[storage.key]
        file.seek(start)
        return file.read(length)

    return Archive(content, tuple(unpickler.foreign), stored)


class _Collecting(InertUnpickler):
    """Remembers the element type of every storage, which alone tells how long it is."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self.elements: dict[str, str] = {}

    def persistent_load(self, pid: Any, /) -> Any:
        found = super().persistent_load(pid)
        if isinstance(found, Storage):
            self.elements[found.key] = found.element
        return found


def _places(file: BinaryIO, keys: Any, elements: dict[str, str]) -> dict[str, tuple[int, int]]:
    places = {}
    for key in map(str, keys):
        count = int.from_bytes(file.read(8), "little", signed=True)
        length = count * CODES[elements[key]][1]
        start = file.tell()
        if count < 0:
            raise BadCheckpointError("a storage of negative length: the file is corrupt.")
        places[key] = start, length
        file.seek(start + length)
    return places


def values_of(record: TensorRecord, raw: bytes) -> bytes:
    """The values of a tensor, row by row, from the bytes of its storage."""
    size = CODES[record.element][1]
    if 0 in record.shape:
        return b""
    steps = zip(record.shape, record.stride, strict=True)
    last = record.offset + sum((length - 1) * step for length, step in steps)
    if (last + 1) * size > len(raw):
        raise BadCheckpointError("a tensor reaches beyond its values: the file is cut short.")
    count, rows = 1, []
    for length in reversed(record.shape):
        rows.append(count)
        count *= length
    plain = tuple(reversed(rows))
    if all(n == 1 or a == b for n, a, b in zip(record.shape, record.stride, plain, strict=True)):
        return raw[record.offset * size : (record.offset + count) * size]
    import numpy as np

    flat = np.frombuffer(raw, dtype=f"V{size}")[record.offset :]
    strides = tuple(step * size for step in record.stride)
    view = np.lib.stride_tricks.as_strided(flat, record.shape, strides, writeable=False)
    return view.tobytes()
