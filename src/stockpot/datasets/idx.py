"""The idx format of MNIST and its relatives: a magic number, the sizes, then the bytes."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path

import torch
from torch import Tensor

from stockpot.errors import BadDataError

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
    expected = int(torch.tensor(sizes).prod()) if sizes else 0
    if len(values) != expected:
        raise BadDataError(
            f"{what}: expected {expected} bytes for {' x '.join(map(str, sizes))}, "
            f"got {len(values)}."
        )
    return values.reshape(sizes)


def read_idx(path: Path) -> Tensor:
    """The array of an idx file, packed with gzip or not."""
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as problem:
        raise BadDataError(f"{path} cannot be read ({problem}).") from None
    return parse_idx(data, str(path))
