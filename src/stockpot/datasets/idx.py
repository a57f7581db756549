"""The idx format of MNIST and its relatives: a magic number, the sizes, then the bytes."""

from __future__ import annotations

import gzip
import math
import struct
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from stockpot.engine.cores import usable_memory
from stockpot.errors import BadDataError
from stockpot.foreign import reading

UNSIGNED_BYTE = 0x08


def parse_idx(data: bytes, what: str) -> Tensor:
    """The array of an idx file of unsigned bytes.

    Args:
        data: the file's bytes, unpacked.
        what: how a message names the file.
    """
    if len(data) < 4 or data[0] or data[1]:
        raise BadDataError(f"{what}: expected an idx file (two zero bytes first).")
    kind, dimensions = data[2], data[3]
    if kind != UNSIGNED_BYTE:
        raise BadDataError(f"{what}: expected unsigned bytes (type 0x08), got type 0x{kind:02x}.")
    start = 4 + 4 * dimensions
    if len(data) < start:
        raise BadDataError(f"{what}: the idx header is cut short.")
    sizes = struct.unpack(f">{dimensions}I", data[4:start])
    array = torch.frombuffer(bytearray(data[start:]), dtype=torch.uint8) if data[start:] else None
    values = torch.empty(0, dtype=torch.uint8) if array is None else array
    expected = math.prod(sizes) if sizes else 0
    if len(values) != expected:
        raise BadDataError(
            f"{what}: expected {expected} bytes for {' x '.join(map(str, sizes))}, "
            f"got {len(values)}."
        )
    return values.reshape(sizes)


def read_idx(path: Path) -> Tensor:
    """The array of an idx file, packed with gzip or not."""
    with reading(path), path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        # A small packed file may hold more than any memory: the header says how much is wanted.
        data = _unpacked(file) if packed else file.read()
        return parse_idx(data, str(path))


def _unpacked(file: BinaryIO) -> bytes:
    with gzip.open(file) as stream:
        head = stream.read(4)
        head += stream.read(4 * head[3] if len(head) == 4 else 0)
        sizes = struct.unpack(f">{(len(head) - 4) // 4}I", head[4 : len(head) // 4 * 4])
        wanted = math.prod(sizes)
        if wanted > usable_memory():
            raise MemoryError
        return head + stream.read(wanted + 1)
